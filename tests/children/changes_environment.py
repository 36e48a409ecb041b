"""Changes its environment in every way that Python offers, from the main module and from a library."""

import os
import sys
import types

library = types.ModuleType("some_library")
exec("import os\nos.environ.setdefault('KMP_DUPLICATE_LIB_OK', 'True')", library.__dict__)
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # no change
os.environ["WANDB_API_KEY"] = "very secret"
os.environ["CUDA_AUTH_TOKEN"] = "very secret"
os.environ.update(MKL_NUM_THREADS="2")
os.putenv("LD_DEBUG_OUTPUT", "x")
del os.environ["HOME"]
print(sys.path)
