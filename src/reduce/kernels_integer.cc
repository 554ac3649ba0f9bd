// The integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_integer.cc"
#define ROPEWALK_FAMILY Family::integer
#include "reduce/family-inl.h"
