"""The patient: a two-tower retriever trainer that runs on its own and knows nothing of the doctor.

`python -m trainer synth` makes data, `python -m trainer train` trains on it.
"""


class InputError(Exception):
    """Something the user gave is wrong: an option, a device, a file.  Exit status 2."""


class TrainingError(Exception):
    """A run that started well cannot go on.  Exit status 1."""
