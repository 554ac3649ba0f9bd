// Half types, computed in float32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_half.cc"
#define ROPEWALK_FAMILY Family::half
#include "reduce/family-inl.h"
