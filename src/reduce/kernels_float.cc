// Floating types that are computed as they are stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_float.cc"
#define ROPEWALK_FAMILY Family::floating
#include "reduce/family-inl.h"
