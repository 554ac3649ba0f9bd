#!python
# The command `ropewalk` of a wheel: runs the program that lies in the package, wherever that was installed.
import importlib.util
import os
import sys

package = importlib.util.find_spec("ropewalk").submodule_search_locations[0]
os.execv(os.path.join(package, "bin/ropewalk"), sys.argv)
