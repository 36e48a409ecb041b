"""What a program computes with: numbers that are no numbers, and input that is damaged."""

from __future__ import annotations

from reproducers.faults.fault import Amount, Fault

FAMILY = "figures"

NAN = Fault(
    name="nan",
    family=FAMILY,
    cause="numerical_divergence",
    about="""
A number in a buffer that the program computes with becomes NaN.

What is real: four or eight bytes of the buffer are set to a NaN behind the program's back; all that follows from it is the
program's own doing.  With --when step:N it is the first weight of the optimiser, with a call the first array of floats among the
call's arguments (NumPy, torch on the CPU, array.array).  What is arranged: that it comes from nowhere, where it else comes from
an overflow, a division by zero or a logarithm; the moment.
""",
    dies="as the program does when it meets NaN, which may be not at all",
    when="step:3",
    platforms="Linux, macOS",
    needs="a moment at which an array is handed over",
    why_not=lambda: None,
    on_a_call=True,
)

DAMAGED_FILE = Fault(
    name="damaged-file",
    family=FAMILY,
    cause="corrupt_input_data",
    about="""
One file of the program's input is damaged in the middle.

What is real: a copy of the file (--file) in which 64 bytes (--amount) in the middle are inverted, as after a bad block or a broken
transfer.  What is arranged: that Python's open() gives the program the copy when it asks for the file; the file itself stays as it
is, and libraries that open it in native code read the good one.
""",
    dies="as its reader does: an exception of a checksum, a decoder or a parser, or wrong numbers",
    when="",
    platforms="Linux, macOS",
    needs="a file of at most 1 GiB that Python code opens",
    why_not=lambda: None,
    amount=Amount(default=64, text="bytes that are inverted"),
    damages_file=True,
)

FAULTS = (NAN, DAMAGED_FILE)
