// What several ranks do through ropewalk.h, in C99: ranks SCENARIO, started by `ropewalk run`.
#define _POSIX_C_SOURCE 200809L
#include "ranks.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

rw_comm comm;
int rank, ranks;

static rw_call call_of(rw_collective collective, const void* in, void* out, size_t count) {
  rw_call call = {.size = sizeof call, .collective = collective, .type = RW_FLOAT32};
  call.in = in;
  call.out = out;
  call.count = count;
  return call;
}

static void common_calls(void) {
  static float own[RANKS_MAX * COUNT], other[RANKS_MAX * COUNT];
  const float mine = (float)(rank + 1);
  fill(own, COUNT, mine);
  OK(rw_all_reduce(comm, own, other, COUNT, RW_FLOAT32, RW_SUM));
  EXPECT(all_are(other, COUNT, sum_of_ranks()));
  OK(rw_all_reduce(comm, own, own, COUNT, RW_FLOAT32, RW_MAX));
  EXPECT(all_are(own, COUNT, (float)ranks));

  fill(own, (size_t)ranks * COUNT, mine);
  OK(rw_reduce_scatter(comm, own, other, COUNT, RW_FLOAT32, RW_SUM));
  EXPECT(all_are(other, COUNT, sum_of_ranks()));
  OK(rw_all_gather(comm, own, other, COUNT, RW_FLOAT32));
  for (int r = 0; r < ranks; ++r) EXPECT(all_are(other + r * COUNT, COUNT, (float)(r + 1)));
  OK(rw_broadcast(comm, own, COUNT, RW_FLOAT32, 1));
  EXPECT(all_are(own, COUNT, 2));
  fill(own, COUNT, mine);
  OK(rw_reduce(comm, own, rank == 1 ? other : NULL, COUNT, RW_FLOAT32, RW_MIN, 1));
  EXPECT(rank != 1 || all_are(other, COUNT, 1));
  OK(rw_gather(comm, own, rank == 0 ? other : NULL, COUNT, RW_FLOAT32, 0));
  for (int r = 0; r < ranks && rank == 0; ++r)
    EXPECT(all_are(other + r * COUNT, COUNT, (float)(r + 1)));
  OK(rw_scatter(comm, rank == 0 ? other : NULL, own, COUNT, RW_FLOAT32, 0));
  EXPECT(all_are(own, COUNT, mine));
  fill(own, (size_t)ranks * COUNT, mine);
  OK(rw_all_to_all(comm, own, other, COUNT, RW_FLOAT32));
  for (int r = 0; r < ranks; ++r) EXPECT(all_are(other + r * COUNT, COUNT, (float)(r + 1)));
  OK(rw_barrier(comm));
}

static void what_is_known(void) {
  const char* transport = NULL;
  int local_rank = -1, local_size = 0, sender = 0;
  OK(rw_comm_local_rank(comm, &local_rank));
  OK(rw_comm_local_size(comm, &local_size));
  EXPECT(local_rank == rank && local_size == ranks);
  OK(rw_comm_transport(comm, &transport));
  EXPECT(strlen(transport) > 1 && rw_version()[0] != 0);
  EXPECT(strcmp(rw_status_name(RW_NO_QUORUM), "no quorum") == 0);
  OK(rw_comm_interrupt_next_sender(comm, 1));
  OK(rw_comm_next_sender(comm, 1000 * kSecond_ns, 1, &sender));
  EXPECT(sender == -1);
}

static void point_to_point(void) {
  float value = (float)rank;
  if (rank == 0) {
    for (int i = 1, sender = -1; i < ranks; ++i) {
      OK(rw_comm_next_sender(comm, 20 * kSecond_ns, 0, &sender));
      EXPECT(sender > 0);
      OK(rw_recv(comm, &value, 1, RW_FLOAT32, sender));
      EXPECT(value == (float)sender);
    }
  } else {
    OK(rw_send(comm, &value, 1, RW_FLOAT32, 0));
  }
  OK(rw_barrier(comm));
}

static void add(void* inout, const void* in, size_t count, uint8_t type, void* context) {
  if (type == RW_FLOAT32)
    for (size_t i = 0; i < count; ++i) ((float*)inout)[i] += ((const float*)in)[i];
  *(int*)context = 1;
}

static void count_up(void* context) {
  ++*(int*)context;
}

static void beside(void) {
  float sum = (float)(rank + 1);
  int called = 0;
  const rw_call call = call_of(RW_ALL_REDUCE, &sum, &sum, 1);
  if (rank != 0) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  OK(rw_run_beside(comm, &call, count_up, &called));
  EXPECT(sum == sum_of_ranks() && (rank != 0 || called > 0));
}

static void described_calls(void) {
  float value[RANKS_MAX] = {0}, out[RANKS_MAX * RANKS_MAX] = {0};
  size_t counts[RANKS_MAX];
  int called = 0;
  rw_call call = call_of(RW_ALL_REDUCE, value, value, 1);
  value[0] = (float)(rank + 1);
  call.op = RW_USER;
  call.function = add;
  call.context = &called;
  call.algorithm = "ring";
  OK(rw_run(comm, &call, 20 * kSecond_ns));
  EXPECT(value[0] == sum_of_ranks());
  OK(rw_all_reduce(comm, &called, &called, 1, RW_INT32, RW_MAX));
  EXPECT(called == 1);

  value[0] = 1;
  call = call_of(RW_ALL_REDUCE, value, value, 1);
  call.op = RW_SCALED_SUM;
  call.scale = rank + 1;
  OK(rw_run(comm, &call, 0));
  EXPECT(value[0] == sum_of_ranks());

  fill(value, RANKS_MAX, (float)rank);
  for (int r = 0; r < ranks; ++r) counts[r] = (size_t)r + 1;
  call = call_of(RW_ALL_GATHER, value, out, 0);
  call.counts = counts;
  OK(rw_run(comm, &call, 0));
  const float* part = out;
  for (int r = 0; r < ranks; part += counts[r++]) EXPECT(all_are(part, counts[r], (float)r));

  OK(rw_run_committed(
      comm,
      &(rw_call){.size = sizeof call, .type = RW_FLOAT32, .in = value, .out = value, .count = 1},
      0));
  EXPECT(value[0] == sum_of_ranks() - (float)ranks);
}

static void note(void* context, const rw_failure* failure) {
  *(volatile int*)context = failure == NULL ? 1 : 2;
}

static void started_calls(void) {
  float values[4] = {1, 1, 1, 1};
  rw_call calls[2] = {call_of(RW_ALL_REDUCE, values, values, 2),
                      call_of(RW_ALL_REDUCE, values + 2, values + 2, 2)};
  rw_work work;
  rw_plan plan;
  bool done = false;
  volatile int told = 0;
  const char* algorithm = NULL;

  OK(rw_start(comm, calls, &work));
  OK(rw_work_on_done(work, note, (void*)&told, 0));
  OK(rw_work_wait(work, 0));
  OK(rw_work_test(work, &done));
  EXPECT(done && values[0] == (float)ranks);
  for (int i = 0; i < 2000 && !told; ++i) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  EXPECT(told == 1);
  OK(rw_work_free(work));

  OK(rw_start_group(comm, calls, 2, &work));
  OK(rw_work_wait_for(work, 20 * kSecond_ns, &done));
  EXPECT(done && values[0] == (float)(ranks * ranks) && values[3] == (float)ranks);
  OK(rw_work_free(work));

  OK(rw_plan_create(comm, calls, &plan));
  fill(values, 4, 1);
  OK(rw_plan_run(plan));
  OK(rw_plan_start(plan));
  for (done = false; !done;) OK(rw_plan_test(plan, &done));
  OK(rw_plan_start(plan));
  OK(rw_plan_wait(plan, 20 * kSecond_ns));
  EXPECT(values[0] == (float)(ranks * ranks * ranks));
  OK(rw_plan_algorithm(plan, &algorithm));
  EXPECT(algorithm != NULL && strlen(algorithm) > 2);
  OK(rw_plan_free(plan));
}

// By an all_gather of the whole.
static rw_status exchange(void* context, const char* own, const char** texts) {
  enum { LENGTH = 64 };
  static char all[RANKS_MAX][LENGTH];
  char text[LENGTH] = "";
  ++*(int*)context;
  strncpy(text, own, LENGTH - 1);
  const rw_status status = rw_all_gather(comm, text, all, LENGTH, RW_INT8);
  for (int r = 0; r < ranks; ++r) texts[r] = all[r];
  return status;
}

static void groups(void) {
  rw_comm part, group;
  int size = 0, of_part = -1, exchanges = 0, members[RANKS_MAX];
  OK(rw_comm_split(comm, rank == 0 ? -1 : 7, -rank, &part));
  EXPECT((part == NULL) == (rank == 0));
  if (part != NULL) {
    float value = 1;
    OK(rw_comm_size(part, &size));
    OK(rw_comm_rank(part, &of_part));
    EXPECT(size == ranks - 1 && of_part == ranks - 1 - rank);
    OK(rw_all_reduce(part, &value, &value, 1, RW_FLOAT32, RW_SUM));
    EXPECT(value == (float)size);
    OK(rw_comm_free(part));
  }
  for (int r = 0; r < ranks; ++r) members[r] = r;
  OK(rw_comm_create_group(comm, members, (size_t)ranks, exchange, &exchanges, 0, &group));
  OK(rw_barrier(group));
  EXPECT(exchanges >= 2);
  OK(rw_comm_free(group));
}

// Another job of the same processes, which meet by a text.
static void meeting(void) {
  char text[1000] = "";
  const char* unique_id = NULL;
  rw_rendezvous rendezvous = NULL;
  rw_comm other;
  int size = 0, of_other = -1;
  if (rank == 0) {
    OK(rw_rendezvous_create(NULL, true, &rendezvous));
    OK(rw_rendezvous_unique_id(rendezvous, &unique_id));
    strncpy(text, unique_id, sizeof text - 1);
  }
  OK(rw_broadcast(comm, text, sizeof text, RW_INT8, 0));
  if (rank == 0)
    OK(rw_rendezvous_join(rendezvous, ranks, NULL, &other));
  else
    OK(rw_join(text, rank, ranks, NULL, &other));
  OK(rw_rendezvous_free(rendezvous));
  OK(rw_comm_size(other, &size));
  OK(rw_comm_rank(other, &of_other));
  EXPECT(size == ranks && of_other == rank);
  OK(rw_barrier(other));
  OK(rw_comm_free(other));
}

static void state(void) {
  float weights[COUNT];
  rw_named_buffer buffer = {.name = "weights", .data = weights, .bytes = sizeof weights};
  rw_state_report report = {.size = sizeof report};
  rw_state_sync sync;
  bool done = false;
  fill(weights, COUNT, (float)rank);
  OK(rw_sync_state(comm, &buffer, 1, rank == 1 ? 5 : 1, RW_NEWEST, 0, 0, &report));
  EXPECT(all_are(weights, COUNT, 1) && report.revision == 5 && strlen(report.hash) == 32);
  EXPECT(report.sources_count == 1 && report.sources[0] == 1);
  EXPECT(report.changed_count == (rank != 1) &&
         (rank == 1 || !strcmp(report.changed[0], "weights")));
  fill(weights, COUNT, (float)rank);
  OK(rw_state_sync_start(comm, &buffer, 1, 6, RW_OF_RANK, 0, &sync));
  OK(rw_state_sync_test(sync, &done));
  OK(rw_state_sync_wait(sync, 0, NULL));
  EXPECT(all_are(weights, COUNT, 0));
  OK(rw_state_sync_free(sync));
}

// Ranks call different things: each is told, and who does.
static void mismatch(void) {
  float values[2] = {1, 1};
  rw_failure failure = {.size = sizeof failure};
  rw_status status = RW_OK;
  for (int i = 0; i < 100 && status == RW_OK; ++i)
    status = rw_all_reduce(comm, values, values, rank == 0 ? 1 : 2, RW_FLOAT32, RW_SUM);
  EXPECT(status == RW_MISMATCH && !rw_is_survivable(status));
  OK(rw_comm_failure(comm, &failure));
  EXPECT(failure.status == RW_MISMATCH);
}

static void expect_epoch(rw_comm next, int number, int size, int departures) {
  rw_epoch epoch = {.size = sizeof epoch};
  OK(rw_comm_epoch(next, &epoch));
  EXPECT(epoch.number == number && epoch.ranks == size && (int)epoch.departures == departures);
  EXPECT(departures > 0 || epoch.former_ranks[rank] == rank);
}

// The last rank is killed in the middle: the others are told who, and go on without it.
static void killed(void) {
  float value = 1;
  rw_failure failure = {.size = sizeof failure};
  rw_departure departure = {.size = sizeof departure};
  rw_epoch epoch = {.size = sizeof epoch};
  uint64_t bits = ~(uint64_t)0 - (1u << rank);
  int pids[RANKS_MAX], pids_again[RANKS_MAX], left[RANKS_MAX], count = 0;
  const int own = (int)getpid(), victim = ranks - 1;
  rw_status status = RW_OK;
  rw_comm next;
  rw_sgd sgd;
  rw_ea ea;
  rw_async_ea async;
  size_t unsure = 1;
  bool exchanged = false;
  int64_t culprit = 0;
  const rw_tensor list = {&value, 1};
  OK(rw_sgd_create(comm, RW_FLOAT32, &sgd));
  OK(rw_ea_create(comm, RW_FLOAT32, 1, 0.25, &ea));
  OK(rw_ea_average_parameters(ea, &list, 1));
  OK(rw_async_ea_create(comm, RW_FLOAT32, 1, 0.25, NULL, &async));
  OK(rw_async_ea_synchronize_center(async, &list, 1));
  OK(rw_all_gather(comm, &own, pids, 1, RW_INT32));
  status = rw_gather(comm, &own, pids_again, 1, RW_INT32, victim);  // all others have come so far
  if (rank == victim) raise(SIGKILL);
  while (status == RW_OK) status = rw_all_reduce(comm, &value, &value, 1, RW_FLOAT32, RW_AVG);
  EXPECT(status == RW_PEER_LOST && rw_is_survivable(status));
  EXPECT(strstr(rw_last_error(), "peer lost") != NULL);
  OK(rw_last_failure(&failure));
  EXPECT(failure.peer == victim && failure.peers_count == 1 && failure.peers[0] == victim);
  EXPECT(rw_barrier(comm) == RW_PEER_LOST);
  OK(rw_comm_culprit_process(comm, &culprit));
  EXPECT(culprit == pids[victim]);

  OK(rw_comm_agree(comm, &bits, left, &count, 0));
  EXPECT(count == victim && left[0] == 0 && bits == ~(uint64_t)0 - ((1u << victim) - 1));
  OK(rw_comm_shrink(comm, 0, &next));
  expect_epoch(next, 1, victim, 1);
  OK(rw_comm_epoch(next, &epoch));
  EXPECT(epoch.keeps_connections);
  OK(rw_comm_departure(next, 0, &departure));
  EXPECT(departure.rank == victim && departure.pid == pids[victim] && departure.has_ended);
  value = (float)rank + 5;
  OK(rw_sgd_declare_state(sgd));  // as they have it: it changes nothing
  OK(rw_ea_declare_state(ea));
  OK(rw_async_ea_declare_state(async));
  OK(rw_sgd_resume(sgd, next, &list, 1));
  EXPECT(value == 5);
  OK(rw_ea_resume(ea, next, &list, 1));
  OK(rw_async_ea_resume(async, next, &list, 1, &unsure));
  OK(rw_async_ea_average_parameters(async, &list, 1, &exchanged));
  EXPECT(unsure == 0 && exchanged);
  OK(rw_comm_free(comm));
  OK(rw_sgd_free(sgd));
  OK(rw_ea_free(ea));
  OK(rw_async_ea_free(async));
  comm = next;
  value = 1;
  OK(rw_all_reduce(comm, &value, &value, 1, RW_FLOAT32, RW_SUM));
  EXPECT(value == (float)victim);
}

// The same without a death.
static void revoked(void) {
  rw_comm next;
  int pending = -1;
  expect_epoch(comm, 0, ranks, 0);
  OK(rw_comm_grow(comm, 0, &next));
  EXPECT(next == NULL);
  OK(rw_comm_pending(comm, &pending));
  EXPECT(pending == 0);
  if (rank == 0) OK(rw_comm_revoke(comm, "a test"));
  rw_status status = RW_OK;
  while (status == RW_OK) status = rw_barrier(comm);
  EXPECT(status == RW_REVOKED && strstr(rw_last_error(), "a test") != NULL);
  OK(rw_comm_shrink(comm, 0, &next));
  expect_epoch(next, 1, ranks, 0);
  OK(rw_comm_free(comm));
  comm = next;
  OK(rw_barrier(comm));
}

// The last rank goes by agreement.
static void departed(void) {
  rw_comm next;
  if (rank == ranks - 1) {
    OK(rw_comm_depart(comm, 0));
    return;
  }
  OK(rw_comm_shrink(comm, 0, &next));
  expect_epoch(next, 1, ranks - 1, 1);
  OK(rw_comm_free(comm));
  comm = next;
  OK(rw_barrier(comm));
}

static void aborted(void) {
  if (rank == 1) OK(rw_comm_abort(comm, "a test aborts"));
  rw_status status = RW_OK;
  while (status == RW_OK) status = rw_barrier(comm);
  EXPECT(status == RW_ABORTED && strstr(rw_last_error(), "a test aborts") != NULL);
}

static void whole(void) {
  what_is_known();
  common_calls();
  point_to_point();
  described_calls();
  beside();
  started_calls();
  groups();
  meeting();
  state();
  policies();
  aborted_policies();
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kScenarios[] = {{"whole", whole},      {"elastic", elastic_policy}, {"mismatch", mismatch},
                    {"killed", killed},    {"revoked", revoked},        {"aborted", aborted},
                    {"departed", departed}};
  const rw_options options = {.size = sizeof options, .timeout_ns = 20 * kSecond_ns};
  OK(rw_comm_create(&options, &comm));
  OK(rw_comm_rank(comm, &rank));
  OK(rw_comm_size(comm, &ranks));
  EXPECT(ranks > 1 && ranks <= RANKS_MAX && argc == 2);
  uint64_t bits = 0;
  int joined[RANKS_MAX], count = RANKS_MAX;
  OK(rw_comm_agree(comm, &bits, joined, &count, 0));  // nobody goes while others still join
  for (size_t i = 0; i < sizeof kScenarios / sizeof *kScenarios; ++i)
    if (strcmp(kScenarios[i].name, argv[1]) == 0) {
      kScenarios[i].run();
      rw_comm_leave(comm);  // after a failure it need not succeed
      EXPECT(rw_barrier(comm) != RW_OK);
      rw_comm_free(comm);
      printf("rank %d of %d: %s passed\n", rank, ranks, argv[1]);
      return 0;
    }
  return 2;
}
