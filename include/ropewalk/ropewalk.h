// Ropewalk from C (C99), and from all that calls C: Python's ctypes, Rust's bindgen, Julia, Go.
//
//   rw_comm comm;
//   if (rw_comm_create(NULL, &comm) != RW_OK)            // rank and size from the launcher
//     return fprintf(stderr, "%s\n", rw_last_error()), 1;
//   rw_all_reduce(comm, values, values, count, RW_FLOAT32, RW_AVG);
//   rw_comm_free(comm);
//
// Each function is one of communicator.h, rendezvous.h, policies.h, elastic_async_ea.h, partial.h
// or state_sync.h, which say what it does, who must call it, and from which threads. Here is what
// differs. docs/c.md says more.
//
// Errors: no exception leaves. Every function returns a status; where it is not RW_OK,
// `rw_last_error` has the text. Results are written only where it is RW_OK; handles are NULL else.
// Handles: not addresses, and never given twice. One that is NULL, was freed, or is of another kind
// is RW_INVALID_ARGUMENT. Whoever gets a handle frees it; to free NULL does nothing.
// Structures: set `size` to sizeof the structure, and what is not used to 0. They grow at their
// end, and programs that were compiled before go on working.
// Time: nanoseconds. A `timeout_ns` of 0 is the communicator's.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define RW_AS_INT : int  // a wrong value is defined behaviour, and is refused
extern "C" {
#else
#define RW_AS_INT
#endif

// ---- Errors ----

typedef enum rw_status RW_AS_INT {
  RW_OK,
  RW_INVALID_ARGUMENT,  // nothing was sent
  RW_MISMATCH,          // ranks called different operations, sizes, types or orders
  RW_TIMEOUT,           // a deadline passed
  RW_PEER_LOST,         // a rank died, was cut off, stopped answering or left
  RW_REFUSED,           // wrong key, wrong job, wrong version
  RW_UNAVAILABLE,       // the transport, algorithm or device asked for is not there
  RW_EXHAUSTED,         // memory, descriptors, limits
  RW_PROTOCOL,          // a peer sent bytes that make no sense
  RW_SYSTEM,            // a system call failed
  RW_ABORTED,           // this job was aborted, here or elsewhere
  RW_REVOKED,           // this epoch's communicators were ended, for the next epoch
  RW_NO_QUORUM          // too few members were left, or reached, to go on
} rw_status;

// What went wrong, where. Ranks are -1 where they do not apply.
typedef struct rw_failure {
  size_t size;
  rw_status status;  // RW_OK: nothing did
  int rank;          // that noticed
  int peer;          // at fault, or waited for; the first of `peers`
  const int* peers;
  size_t peers_count;
  const char *operation, *reason, *advice;
} rw_failure;

// Of this thread's last call that failed, in one line: "" before. Until the next that fails.
const char* rw_last_error(void);
// The same in parts.
rw_status rw_last_failure(rw_failure* failure);
const char* rw_status_name(rw_status status);
// Whether the ranks that are left may go on with rw_comm_shrink.
bool rw_is_survivable(rw_status status);
const char* rw_version(void);

// ---- What moves ----

typedef enum rw_type RW_AS_INT {
  RW_FLOAT16,
  RW_BFLOAT16,
  RW_FLOAT32,
  RW_FLOAT64,
  RW_INT8,
  RW_UINT8,
  RW_INT16,
  RW_UINT16,
  RW_INT32,
  RW_UINT32,
  RW_INT64,
  RW_UINT64
} rw_type;

typedef enum rw_op RW_AS_INT {
  RW_SUM,
  RW_PROD,
  RW_MIN,
  RW_MAX,
  RW_AVG,
  RW_SCALED_SUM,  // rw_call only
  RW_USER         // rw_call only
} rw_op;

typedef enum rw_collective RW_AS_INT {
  RW_ALL_REDUCE,
  RW_REDUCE_SCATTER,
  RW_ALL_GATHER,
  RW_BROADCAST,
  RW_REDUCE,
  RW_GATHER,
  RW_SCATTER,
  RW_ALL_TO_ALL,
  RW_BARRIER,
  RW_SEND,
  RW_RECV
} rw_collective;

// Adds `count` elements at `in` to `inout`. Commutative and associative; from any thread. `type` is
// an rw_type.
typedef void (*rw_user_reduction)(void* inout, const void* in, size_t count, uint8_t type,
                                  void* context);

// Any call: see Call in call.h. In place: in == out.
typedef struct rw_call {
  size_t size;
  rw_collective collective;
  rw_type type;
  const void* in;
  void* out;
  size_t count;                        // elements; see call.h
  const size_t *counts, *recv_counts;  // NULL, or one for each rank: parts of different lengths
  rw_op op;
  int root;                    // also the peer of send and recv
  double scale;                // RW_SCALED_SUM: what this rank's input is multiplied by
  rw_user_reduction function;  // RW_USER: the same on every rank
  void* context;               // for `function`
  const char* algorithm;       // NULL: the planner chooses. "ring", "tree", ...
  int channel;                 // send and recv: 0 or 1
  uint32_t tag;                // send and recv
} rw_call;

// ---- Communicators ----

typedef struct rw_comm_handle* rw_comm;
typedef struct rw_work_handle* rw_work;
typedef struct rw_plan_handle* rw_plan;
typedef struct rw_rendezvous_handle* rw_rendezvous;
typedef struct rw_stop_handle* rw_stop;

typedef enum rw_switch RW_AS_INT { RW_DEFAULT, RW_ON, RW_OFF } rw_switch;

// How to join. What is 0 or NULL comes from ROPEWALK_* variables, then from the launcher, then from
// defaults: see Options in communicator.h.
typedef struct rw_options {
  size_t size;
  int rank;  // counts where `ranks` is not 0
  int ranks;
  const char* coordinator;
  int coordinator_fd;
  rw_switch secure;
  const char* key;
  const char* transport;
  int64_t timeout_ns, join_timeout_ns;
  rw_switch progress_thread;
  rw_switch bind_progress;  // RW_ON: to `progress_cpu`
  int progress_cpu;
  rw_switch elastic, join_running, tie_breaker;
  int quorum_min;
  int64_t admission_timeout_ns;
  rw_stop stop;  // ends joining; may be freed meanwhile
} rw_options;

// `options` may be NULL.
rw_status rw_comm_create(const rw_options* options, rw_comm* comm);
// Leaves the job, as rw_comm_leave, whose status it returns. The handle is freed in any case; what
// was made of it may be freed later.
rw_status rw_comm_free(rw_comm comm);
rw_status rw_comm_leave(rw_comm comm);

// What ends rw_comm_create and rw_join in another thread, as they wait for others, with RW_ABORTED.
rw_status rw_stop_create(rw_stop* stop);
rw_status rw_stop_request(rw_stop stop);
rw_status rw_stop_free(rw_stop stop);

rw_status rw_comm_rank(rw_comm comm, int* rank);
rw_status rw_comm_size(rw_comm comm, int* size);
rw_status rw_comm_local_rank(rw_comm comm, int* rank);
rw_status rw_comm_local_size(rw_comm comm, int* size);
rw_status rw_comm_transport(rw_comm comm, const char** name);  // until the handle is freed

// Ranks that exchange a line of text, and need no launcher: see rendezvous.h.
rw_status rw_rendezvous_create(const rw_options* common, bool this_host_only,
                               rw_rendezvous* rendezvous);
rw_status rw_rendezvous_unique_id(rw_rendezvous rendezvous, const char** unique_id);
rw_status rw_rendezvous_join(rw_rendezvous rendezvous, int ranks, const rw_options* common,
                             rw_comm* comm);  // rank 0
rw_status rw_rendezvous_free(rw_rendezvous rendezvous);
rw_status rw_join(const char* unique_id, int rank, int ranks, const rw_options* common,
                  rw_comm* comm);  // the others

// Registered memory, zeroed: moves without a copy. Not collective.
rw_status rw_mem_alloc(rw_comm comm, size_t bytes, void** memory);
rw_status rw_mem_free(void* memory);

// Any call, three ways. `call` itself, not the memory, may go when they return.
rw_status rw_run(rw_comm comm, const rw_call* call, int64_t timeout_ns);
// Without a deadline: while it waits it calls `meanwhile`, so that other things go on.
typedef void (*rw_meanwhile)(void* context);
rw_status rw_run_beside(rw_comm comm, const rw_call* call, rw_meanwhile meanwhile, void* context);
rw_status rw_start(rw_comm comm, const rw_call* call, rw_work* work);
rw_status rw_plan_create(rw_comm comm, const rw_call* call, rw_plan* plan);
rw_status rw_start_group(rw_comm comm, const rw_call* calls, size_t count, rw_work* work);
// An all_reduce on all ranks that are left, or on none.
rw_status rw_run_committed(rw_comm comm, const rw_call* call, int64_t timeout_ns);

// The common calls. `count` is in elements: of the whole vector, or of one rank's part.
rw_status rw_all_reduce(rw_comm comm, const void* in, void* out, size_t count, rw_type type,
                        rw_op op);
rw_status rw_reduce_scatter(rw_comm comm, const void* in, void* out, size_t count, rw_type type,
                            rw_op op);
rw_status rw_all_gather(rw_comm comm, const void* in, void* out, size_t count, rw_type type);
rw_status rw_broadcast(rw_comm comm, void* inout, size_t count, rw_type type, int root);
rw_status rw_reduce(rw_comm comm, const void* in, void* out, size_t count, rw_type type, rw_op op,
                    int root);
rw_status rw_gather(rw_comm comm, const void* in, void* out, size_t count, rw_type type, int root);
rw_status rw_scatter(rw_comm comm, const void* in, void* out, size_t count, rw_type type, int root);
rw_status rw_all_to_all(rw_comm comm, const void* in, void* out, size_t count, rw_type type);
rw_status rw_send(rw_comm comm, const void* in, size_t count, rw_type type, int to);
rw_status rw_recv(rw_comm comm, void* out, size_t count, rw_type type, int from);
rw_status rw_barrier(rw_comm comm);

// `failure` is NULL where it has finished.
typedef void (*rw_done)(void* context, const rw_failure* failure);
rw_status rw_work_test(rw_work work, bool* done);
rw_status rw_work_wait(rw_work work, int64_t timeout_ns);
rw_status rw_work_wait_for(rw_work work, int64_t limit_ns, bool* done);
rw_status rw_work_on_done(rw_work work, rw_done callback, void* context, int64_t timeout_ns);
rw_status rw_work_free(rw_work work);  // waits for its end

rw_status rw_plan_run(rw_plan plan);
rw_status rw_plan_start(rw_plan plan);
rw_status rw_plan_test(rw_plan plan, bool* done);
rw_status rw_plan_wait(rw_plan plan, int64_t timeout_ns);
rw_status rw_plan_algorithm(rw_plan plan, const char** name);
rw_status rw_plan_free(rw_plan plan);  // waits for the end of its run

// `sender` is -1 where none came within `limit_ns`.
rw_status rw_comm_next_sender(rw_comm comm, int64_t limit_ns, int channel, int* sender);
rw_status rw_comm_interrupt_next_sender(rw_comm comm, int channel);

// `part` is NULL where `color` is negative.
rw_status rw_comm_split(rw_comm comm, int color, int key, rw_comm* part);
// Sets texts[i] to what the i-th rank of the group has passed as `own`; they stay until it is
// called again or rw_comm_create_group returns. What is not RW_OK ends that.
typedef rw_status (*rw_exchange)(void* context, const char* own, const char** texts);
rw_status rw_comm_create_group(rw_comm comm, const int* ranks, size_t count, rw_exchange exchange,
                               void* context, int64_t timeout_ns, rw_comm* group);

// ---- Failures and epochs ----

typedef struct rw_departure {
  size_t size;
  int rank;        // in the epoch before
  bool has_ended;  // else it did not answer in time
  int64_t pid;
  const char* host_name;
} rw_departure;

typedef struct rw_epoch {
  size_t size;
  int number;
  int ranks;
  const int* former_ranks;  // for each rank; -1 of a newcomer
  size_t departures;        // see rw_comm_departure
  const char* reason;
  int64_t change_time_ns;
  bool keeps_connections;  // the members go on over those of the epoch before
} rw_epoch;

rw_status rw_comm_abort(rw_comm comm, const char* reason);
// Why it is broken. What it points at: until this thread's next call of it.
rw_status rw_comm_failure(rw_comm comm, rw_failure* failure);
rw_status rw_comm_culprit_process(rw_comm comm, int64_t* pid);  // 0: none
rw_status rw_comm_revoke(rw_comm comm, const char* reason);
rw_status rw_comm_shrink(rw_comm comm, int64_t timeout_ns, rw_comm* next);
rw_status rw_comm_grow(rw_comm comm, int64_t timeout_ns, rw_comm* next);  // NULL: none
rw_status rw_comm_depart(rw_comm comm, int64_t timeout_ns);
rw_status rw_comm_pending(rw_comm comm, int* processes);
// `bits`: in and out. `ranks` has room for as many as the communicator has, or is NULL.
rw_status rw_comm_agree(rw_comm comm, uint64_t* bits, int* ranks, int* count, int64_t timeout_ns);
// What they point at: until the handle is freed.
rw_status rw_comm_epoch(rw_comm comm, rw_epoch* epoch);
rw_status rw_comm_departure(rw_comm comm, size_t index, rw_departure* departure);

// ---- State for newcomers: state_sync.h ----

typedef struct rw_state_sync_handle* rw_state_sync;

typedef struct rw_named_buffer {  // never grows
  const char* name;
  void* data;
  size_t bytes;
} rw_named_buffer;

typedef enum rw_state_source RW_AS_INT { RW_NEWEST, RW_MAJORITY, RW_OF_RANK } rw_state_source;

// What it points at: until this thread's next call that fills one.
typedef struct rw_state_report {
  size_t size;
  uint64_t revision;
  const char* hash;
  const int* sources;
  size_t sources_count;
  const char* const* changed;
  size_t changed_count;
  uint64_t bytes_received, bytes_sent;
} rw_state_report;

// `rank`: of RW_OF_RANK. `report` may be NULL.
rw_status rw_sync_state(rw_comm comm, const rw_named_buffer* buffers, size_t count,
                        uint64_t revision, rw_state_source source, int rank, int64_t timeout_ns,
                        rw_state_report* report);
rw_status rw_state_sync_start(rw_comm comm, const rw_named_buffer* buffers, size_t count,
                              uint64_t revision, rw_state_source source, int rank,
                              rw_state_sync* sync);
rw_status rw_state_sync_test(rw_state_sync sync, bool* done);
rw_status rw_state_sync_wait(rw_state_sync sync, int64_t timeout_ns, rw_state_report* report);
rw_status rw_state_sync_free(rw_state_sync sync);  // waits for its end

// ---- Policies: policies.h, elastic_async_ea.h, partial.h ----

typedef struct rw_sgd_handle* rw_sgd;
typedef struct rw_ea_handle* rw_ea;
typedef struct rw_async_ea_handle* rw_async_ea;
typedef struct rw_elastic_ea_handle* rw_elastic_ea;
typedef struct rw_partial_handle* rw_partial;

// Of the policy's type, which is floating.
typedef struct rw_tensor {  // never grows
  void* data;
  size_t count;
} rw_tensor;

rw_status rw_sgd_create(rw_comm comm, rw_type type, rw_sgd* sgd);
rw_status rw_sgd_sum_gradients(rw_sgd sgd, const rw_tensor* gradients, size_t count,
                               int* contributors);
rw_status rw_sgd_sum_and_normalize_gradients(rw_sgd sgd, const rw_tensor* gradients, size_t count,
                                             int* contributors);
rw_status rw_sgd_synchronize_parameters(rw_sgd sgd, const rw_tensor* parameters, size_t count);
rw_status rw_sgd_resume(rw_sgd sgd, rw_comm next, const rw_tensor* parameters, size_t count);
rw_status rw_sgd_declare_state(rw_sgd sgd);
rw_status rw_sgd_free(rw_sgd sgd);

rw_status rw_ea_create(rw_comm comm, rw_type type, int tau, double alpha, rw_ea* ea);
rw_status rw_ea_average_parameters(rw_ea ea, const rw_tensor* parameters, size_t count);
rw_status rw_ea_synchronize_center(rw_ea ea, const rw_tensor* parameters, size_t count);
rw_status rw_ea_synchronize_parameters(rw_ea ea, const rw_tensor* parameters, size_t count);
rw_status rw_ea_resume(rw_ea ea, rw_comm next, const rw_tensor* parameters, size_t count);
rw_status rw_ea_declare_state(rw_ea ea);
rw_status rw_ea_free(rw_ea ea);

typedef struct rw_async_ea_options {
  size_t size;
  int servers;
  rw_switch replicated;  // default: on
  rw_switch completes;   // default: off
} rw_async_ea_options;

// `options` may be NULL.
rw_status rw_async_ea_create(rw_comm comm, rw_type type, int tau, double alpha,
                             const rw_async_ea_options* options, rw_async_ea* ea);
rw_status rw_async_ea_average_parameters(rw_async_ea ea, const rw_tensor* parameters, size_t count,
                                         bool* exchanged);
rw_status rw_async_ea_synchronize_center(rw_async_ea ea, const rw_tensor* parameters, size_t count);
rw_status rw_async_ea_synchronize_parameters(rw_async_ea ea, const rw_tensor* parameters,
                                             size_t count);
rw_status rw_async_ea_center(rw_async_ea ea, const rw_tensor* center, size_t count);
rw_status rw_async_ea_serve(rw_async_ea ea);
rw_status rw_async_ea_resume(rw_async_ea ea, rw_comm next, const rw_tensor* parameters,
                             size_t count, size_t* unsure);
rw_status rw_async_ea_declare_state(rw_async_ea ea);
rw_status rw_async_ea_leave(rw_async_ea ea);
rw_status rw_async_ea_abort(rw_async_ea ea, const char* reason);
rw_status rw_async_ea_free(rw_async_ea ea);  // as rw_async_ea_leave

typedef struct rw_membership {
  size_t size;
  int epoch, rank, ranks;
} rw_membership;

// `timeout_ns` of 0: 30 s. `has_state`: of a newcomer whose parameters are of a checkpoint.
rw_status rw_elastic_ea_create(rw_comm comm, rw_type type, int tau, double alpha,
                               const rw_tensor* parameters, size_t count, int64_t timeout_ns,
                               bool has_state, rw_elastic_ea* ea);
rw_status rw_elastic_ea_average_parameters(rw_elastic_ea ea, const rw_tensor* parameters,
                                           size_t count, bool* exchanged);
rw_status rw_elastic_ea_steps(rw_elastic_ea ea, uint64_t* steps);
rw_status rw_elastic_ea_membership(rw_elastic_ea ea, rw_membership* membership);
rw_status rw_elastic_ea_finish(rw_elastic_ea ea, const rw_tensor* parameters, size_t count);
rw_status rw_elastic_ea_leave(rw_elastic_ea ea);
rw_status rw_elastic_ea_abort(rw_elastic_ea ea, const char* reason);
rw_status rw_elastic_ea_free(rw_elastic_ea ea);  // as rw_elastic_ea_leave

// What it points at: until this thread's next call that fills one.
typedef struct rw_partial_sum {
  size_t size;
  const uint32_t* contributions;  // for each rank
  int ranks;
  uint32_t rounds;
  uint64_t total;
} rw_partial_sum;

// `sum` may be NULL.
rw_status rw_partial_create(rw_comm comm, size_t count, rw_type type, rw_partial* partial);
rw_status rw_partial_all_reduce(rw_partial partial, void* data, size_t count, int64_t patience_ns,
                                rw_partial_sum* sum);
rw_status rw_partial_finish(rw_partial partial, void* rest, size_t count, rw_partial_sum* sum);
rw_status rw_partial_abort(rw_partial partial, const char* reason);
rw_status rw_partial_free(rw_partial partial);  // as finish, and drops the rest

#undef RW_AS_INT
#ifdef __cplusplus
}  // extern "C"
#endif
