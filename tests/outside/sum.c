// Every rank brings its number plus one; every rank gets the sum of all.
#include <stdio.h>

#include "ropewalk/ropewalk.h"

static int fail(void) {
  fprintf(stderr, "%s\n", rw_last_error());
  return 1;
}

int main(void) {
  const size_t count = 1 << 20;
  rw_comm comm;
  int rank, size;
  void* memory;
  if (rw_comm_create(NULL, &comm)) return fail();  // rank and size come from the launcher
  if (rw_comm_rank(comm, &rank) || rw_comm_size(comm, &size)) return fail();
  if (rw_mem_alloc(comm, count * sizeof(float), &memory)) return fail();  // sent without a copy
  float* values = memory;
  for (size_t i = 0; i < count; ++i) values[i] = (float)(rank + 1);

  if (rw_all_reduce(comm, values, values, count, RW_FLOAT32, RW_SUM)) return fail();

  printf("rank %d of %d: sum %.0f\n", rank, size, values[0]);
  if (rw_comm_free(comm) || rw_mem_free(memory)) return fail();
  return 0;
}
