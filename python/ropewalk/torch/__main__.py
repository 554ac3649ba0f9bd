"""python -m ropewalk.torch: compiles the backend for the PyTorch that is installed, where it is not there yet."""
from .build import load

print(load().__file__)
