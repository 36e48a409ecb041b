"""The suspects as programs: each does one thing that a training job does, prints its steps and says when it has finished."""
