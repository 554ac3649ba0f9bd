// The policies, on several ranks.
#include "ranks.h"

void policies(void) {
  float values[COUNT];
  double parts[2] = {1, 1};
  const rw_tensor list = {values, COUNT};
  const rw_tensor doubles[2] = {{&parts[0], 1}, {&parts[1], 1}};
  int contributors = 0;
  bool exchanged = false;
  rw_sgd sgd;
  OK(rw_sgd_create(comm, RW_FLOAT64, &sgd));
  OK(rw_sgd_sum_gradients(sgd, doubles, 2, &contributors));
  EXPECT(contributors == ranks && parts[0] == ranks && parts[1] == ranks);
  OK(rw_sgd_sum_and_normalize_gradients(sgd, doubles, 2, &contributors));
  EXPECT(parts[1] == ranks);
  parts[0] = rank;
  OK(rw_sgd_synchronize_parameters(sgd, doubles, 2));
  EXPECT(parts[0] == 0);
  OK(rw_sgd_free(sgd));

  rw_ea ea;
  OK(rw_ea_create(comm, RW_FLOAT32, 1, 0.25, &ea));
  fill(values, COUNT, (float)rank);
  OK(rw_ea_average_parameters(ea, &list, 1));
  OK(rw_ea_synchronize_center(ea, &list, 1));
  OK(rw_ea_synchronize_parameters(ea, &list, 1));
  OK(rw_ea_free(ea));

  rw_async_ea async;
  const rw_async_ea_options options = {.size = sizeof options, .replicated = RW_OFF};
  OK(rw_async_ea_create(comm, RW_FLOAT32, 1, 0.25, &options, &async));
  fill(values, COUNT, 8);
  OK(rw_async_ea_synchronize_center(async, &list, 1));
  if (rank == 1) {
    fill(values, COUNT, 16);
    OK(rw_async_ea_average_parameters(async, &list, 1, &exchanged));
    EXPECT(exchanged && all_are(values, COUNT, 14));
  }
  OK(rw_async_ea_center(async, &list, 1));
  EXPECT(all_are(values, COUNT, 10));
  OK(rw_async_ea_synchronize_parameters(async, &list, 1));
  OK(rw_async_ea_leave(async));
  OK(rw_async_ea_free(async));

  const rw_async_ea_options served = {.size = sizeof served, .servers = 1};
  OK(rw_async_ea_create(comm, RW_FLOAT32, 1, 0.25, &served, &async));
  if (rank == 0)
    OK(rw_async_ea_serve(async));
  else
    OK(rw_async_ea_synchronize_center(async, &list, 1));
  OK(rw_async_ea_free(async));

  rw_partial partial;
  rw_partial_sum sum = {.size = sizeof sum};
  uint64_t got = 0;
  OK(rw_partial_create(comm, COUNT, RW_FLOAT32, &partial));
  fill(values, COUNT, 1);
  OK(rw_partial_all_reduce(partial, values, COUNT, kSecond_ns / 1000, &sum));
  EXPECT(sum.ranks == ranks && all_are(values, COUNT, (float)sum.total));
  got = sum.total;
  OK(rw_partial_finish(partial, values, COUNT, &sum));
  EXPECT(got + sum.total == (uint64_t)ranks);
  OK(rw_partial_free(partial));
}

// Who waits in vain is told that another has ended it.
void aborted_policies(void) {
  float value = 1;
  const rw_tensor list = {&value, 1};
  rw_async_ea async;
  rw_partial partial;
  rw_status status;
  OK(rw_async_ea_create(comm, RW_FLOAT32, 1, 0.25, NULL, &async));
  OK(rw_partial_create(comm, 1, RW_FLOAT32, &partial));
  OK(rw_async_ea_synchronize_center(async, &list, 1));
  OK(rw_barrier(comm));
  if (rank == 0) OK(rw_async_ea_abort(async, "no more"));
  for (status = RW_OK; status == RW_OK;) status = rw_async_ea_center(async, &list, 1);
  EXPECT(status == RW_ABORTED && strstr(rw_last_error(), "no more") != NULL);
  if (rank == 0) OK(rw_partial_abort(partial, "enough"));
  for (status = RW_OK; status == RW_OK;)
    status = rw_partial_all_reduce(partial, &value, 1, kSecond_ns, NULL);
  EXPECT(status == RW_ABORTED && strstr(rw_last_error(), "enough") != NULL);
  OK(rw_async_ea_free(async));
  OK(rw_partial_free(partial));
  OK(rw_barrier(comm));
}

void elastic_policy(void) {
  float values[COUNT];
  const rw_tensor list = {values, COUNT};
  rw_comm everyone;
  rw_elastic_ea ea;
  rw_membership membership = {.size = sizeof membership};
  uint64_t steps = 0;
  bool exchanged = false;
  fill(values, COUNT, (float)rank);
  OK(rw_comm_split(comm, 0, 0, &everyone));
  OK(rw_elastic_ea_create(comm, RW_FLOAT32, 2, 0.25, &list, 1, 0, false, &ea));
  EXPECT(all_are(values, COUNT, 0));
  OK(rw_elastic_ea_average_parameters(ea, &list, 1, &exchanged));
  OK(rw_elastic_ea_steps(ea, &steps));
  OK(rw_elastic_ea_membership(ea, &membership));
  EXPECT(!exchanged && steps == 1 && membership.rank == rank && membership.ranks == ranks);
  // The last goes once all have seen that; on others it may go while they are still in here.
  const rw_status met = rw_barrier(everyone);
  EXPECT(met == RW_OK || rank < ranks - 1);
  OK(rw_comm_free(everyone));
  if (rank == ranks - 1) {
    OK(rw_elastic_ea_leave(ea));
  } else {
    OK(rw_elastic_ea_finish(ea, &list, 1));
    OK(rw_elastic_ea_membership(ea, &membership));
    EXPECT(membership.epoch == 1 && membership.ranks == ranks - 1);
  }
  OK(rw_elastic_ea_free(ea));
}
