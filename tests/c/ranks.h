// What the programs' parts share: this process's rank, and how to expect something of it.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ropewalk/ropewalk.h"

enum { RANKS_MAX = 8, COUNT = 1000 };
static const int64_t kSecond_ns = 1000000000;

extern rw_comm comm;
extern int rank, ranks;

static inline void expect_at(int holds, const char* text, const char* file, int line) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s:%d: %s; last error: %s\n", rank, file, line, text, rw_last_error());
  exit(1);
}
#define EXPECT(condition) expect_at((condition), #condition, __FILE__, __LINE__)
#define OK(call) EXPECT((call) == RW_OK)

static inline void fill(float* values, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) values[i] = value;
}
static inline int all_are(const float* values, size_t count, float value) {
  for (size_t i = 0; i < count; ++i)
    if (values[i] != value) return 0;
  return 1;
}
static inline float sum_of_ranks(void) {
  return (float)(ranks * (ranks + 1) / 2);
}

// policies.c
void policies(void);
void aborted_policies(void);
void elastic_policy(void);
