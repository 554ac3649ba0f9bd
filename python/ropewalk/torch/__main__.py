"""python -m ropewalk.torch: compiles the backend for the PyTorch that is installed."""
from .build import load

print(load().__file__)
