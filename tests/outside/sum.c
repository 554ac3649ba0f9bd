/* Every rank brings its number plus one; every rank gets the sum of all. */
#include <stdio.h>

#include "ropewalk/ropewalk.h"

enum { COUNT = 1 << 20 };

static int fail(void) {
  fprintf(stderr, "%s\n", rw_last_error());
  return 1;
}

int main(void) {
  rw_comm comm;
  void* memory;
  int rank, size;
  if (rw_comm_create(NULL, &comm)) return fail(); /* rank and size come from the launcher */
  if (rw_comm_rank(comm, &rank) || rw_comm_size(comm, &size)) return fail();
  if (rw_mem_alloc(comm, COUNT * sizeof(float), &memory)) return fail(); /* registered */
  float* values = memory;
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(rank + 1);

  if (rw_all_reduce(comm, values, values, COUNT, RW_FLOAT32, RW_SUM)) return fail();

  printf("rank %d of %d: sum %.0f\n", rank, size, values[0]);
  rw_mem_free(memory);
  return rw_comm_free(comm) ? fail() : 0;
}
