// Calls, at once, started and planned, and the memory that they move.
#include "c/calls.h"

#include <span>
#include <vector>

namespace ropewalk::c {

DataType type_of(int type) {
  return enumerator<DataType>(type, kDataTypes, "rw_type");
}

namespace {

std::vector<size_t> counts_of(const Communicator& comm, const size_t* counts) {
  if (counts == nullptr) return {};
  return {counts, counts + comm.size()};
}

/// A function of C gets the number of the type, which is passed alike.
UserReduction function_of(rw_user_reduction function) {
  static_assert(sizeof(DataType) == sizeof(uint8_t));
  return reinterpret_cast<UserReduction>(function);
}

Algorithm algorithm_of(const char* name) {
  if (name == nullptr) return Algorithm::automatic;
  const auto algorithm = algorithm_named(name);
  if (!algorithm)
    reject("there is no algorithm " + std::string(name), "`ropewalk verify` lists them");
  return *algorithm;
}

Call checked(const Communicator& comm, const rw_call& call) {
  Call made;
  made.collective = enumerator<Collective>(call.collective, kCollectives, "rw_collective");
  made.in = call.in;
  made.out = call.out;
  made.count = call.count;
  made.counts = counts_of(comm, call.counts);
  made.recv_counts = counts_of(comm, call.recv_counts);
  made.type = type_of(call.type);
  made.op.kind = enumerator<ReduceKind>(call.op, kReduceKinds, "rw_op");
  if (made.op.kind == ReduceKind::scaled_sum) made.op.scale = call.scale;
  if (made.op.kind == ReduceKind::user) {
    made.op.function = function_of(call.function);
    made.op.context = call.context;
  }
  made.root = call.root;
  made.channel = call.channel;
  made.tag = call.tag;
  made.algorithm = algorithm_of(call.algorithm);
  return made;
}

/// They lie one behind the other, each as large as the first says.
std::vector<Call> calls_of(const Communicator& comm, const rw_call* calls, size_t count) {
  require_array(calls, count, "calls");
  std::vector<Call> made;
  const auto* at = reinterpret_cast<const std::byte*>(calls);
  for (size_t i = 0; i < count; ++i, at += calls->size) {
    const auto& call = *reinterpret_cast<const rw_call*>(at);
    if (call.size != calls->size) reject("the calls' sizes differ");
    made.push_back(call_of(comm, call));
  }
  return made;
}

/// The common calls.
rw_status run(const char* operation, rw_comm comm, rw_collective collective, const void* in,
              void* out, size_t count, rw_type type, int root, rw_op op = RW_SUM) {
  return guarded(operation, [&] {
    const auto communicator = communicator_of(comm);
    if (op >= RW_SCALED_SUM) reject("this op needs more than its name", "use rw_run");
    rw_call call{};
    call.collective = collective;
    call.type = type;
    call.in = in;
    call.out = out;
    call.count = count;
    call.root = root;
    call.op = op;
    communicator->run(checked(*communicator, call));
  });
}

}  // namespace

Call call_of(const Communicator& comm, const rw_call& given) {
  return checked(comm, take(given));
}

template <>
struct Target<void*> {
  using Object = Buffer<std::byte>;
  static constexpr const char* kName = "memory of rw_mem_alloc";
};

}  // namespace ropewalk::c

using namespace ropewalk;
using namespace ropewalk::c;

extern "C" {

rw_status rw_mem_alloc(rw_comm comm, size_t bytes, void** memory) {
  return guarded(__func__, [&] {
    required(memory, "memory") = nullptr;
    auto buffer = communicator_of(comm)->allocate<std::byte>(bytes);
    void* data = buffer.data();
    if (bytes == 0) return;
    keep(reinterpret_cast<uintptr_t>(data), std::make_shared<Buffer<std::byte>>(std::move(buffer)),
         Target<void*>::kName);
    *memory = data;
  });
}
rw_status rw_mem_free(void* memory) {
  return release(__func__, memory);
}

rw_status rw_run(rw_comm comm, const rw_call* call, int64_t timeout_ns) {
  return guarded(__func__, [&] {
    const auto communicator = communicator_of(comm);
    communicator->run(call_of(*communicator, required(call, "call")), timeout_of(timeout_ns));
  });
}
rw_status rw_run_beside(rw_comm comm, const rw_call* call, rw_meanwhile meanwhile, void* context) {
  return guarded(__func__, [&] {
    const auto communicator = communicator_of(comm);
    required(meanwhile, "meanwhile");
    communicator->run_beside(call_of(*communicator, required(call, "call")),
                             [=] { meanwhile(context); });
  });
}
rw_status rw_run_committed(rw_comm comm, const rw_call* call, int64_t timeout_ns) {
  return guarded(__func__, [&] {
    const auto communicator = communicator_of(comm);
    communicator->run_committed(call_of(*communicator, required(call, "call")),
                                timeout_of(timeout_ns));
  });
}
rw_status rw_start(rw_comm comm, const rw_call* call, rw_work* work) {
  return guarded(__func__, [&] {
    NewHandle made(work);
    const auto communicator = communicator_of(comm);
    made.make(communicator->start(call_of(*communicator, required(call, "call"))));
  });
}
rw_status rw_start_group(rw_comm comm, const rw_call* calls, size_t count, rw_work* work) {
  return guarded(__func__, [&] {
    NewHandle made(work);
    const auto communicator = communicator_of(comm);
    made.make(communicator->start_group(calls_of(*communicator, calls, count)));
  });
}
rw_status rw_plan_create(rw_comm comm, const rw_call* call, rw_plan* plan) {
  return guarded(__func__, [&] {
    NewHandle made(plan);
    const auto communicator = communicator_of(comm);
    made.make(communicator->plan(call_of(*communicator, required(call, "call"))));
  });
}

rw_status rw_all_reduce(rw_comm comm, const void* in, void* out, size_t count, rw_type type,
                        rw_op op) {
  return run(__func__, comm, RW_ALL_REDUCE, in, out, count, type, 0, op);
}
rw_status rw_reduce_scatter(rw_comm comm, const void* in, void* out, size_t count, rw_type type,
                            rw_op op) {
  return run(__func__, comm, RW_REDUCE_SCATTER, in, out, count, type, 0, op);
}
rw_status rw_all_gather(rw_comm comm, const void* in, void* out, size_t count, rw_type type) {
  return run(__func__, comm, RW_ALL_GATHER, in, out, count, type, 0);
}
rw_status rw_broadcast(rw_comm comm, void* inout, size_t count, rw_type type, int root) {
  return run(__func__, comm, RW_BROADCAST, inout, inout, count, type, root);
}
rw_status rw_reduce(rw_comm comm, const void* in, void* out, size_t count, rw_type type, rw_op op,
                    int root) {
  return run(__func__, comm, RW_REDUCE, in, out, count, type, root, op);
}
rw_status rw_gather(rw_comm comm, const void* in, void* out, size_t count, rw_type type, int root) {
  return run(__func__, comm, RW_GATHER, in, out, count, type, root);
}
rw_status rw_scatter(rw_comm comm, const void* in, void* out, size_t count, rw_type type,
                     int root) {
  return run(__func__, comm, RW_SCATTER, in, out, count, type, root);
}
rw_status rw_all_to_all(rw_comm comm, const void* in, void* out, size_t count, rw_type type) {
  return run(__func__, comm, RW_ALL_TO_ALL, in, out, count, type, 0);
}
rw_status rw_send(rw_comm comm, const void* in, size_t count, rw_type type, int to) {
  return run(__func__, comm, RW_SEND, in, nullptr, count, type, to);
}
rw_status rw_recv(rw_comm comm, void* out, size_t count, rw_type type, int from) {
  return run(__func__, comm, RW_RECV, nullptr, out, count, type, from);
}
rw_status rw_barrier(rw_comm comm) {
  return guarded(__func__, [&] { communicator_of(comm)->barrier(); });
}

rw_status rw_work_test(rw_work work, bool* done) {
  return guarded(__func__, [&] { required(done, "done") = look_up(work)->test(); });
}
rw_status rw_work_wait(rw_work work, int64_t timeout_ns) {
  return guarded(__func__, [&] { look_up(work)->wait(timeout_of(timeout_ns)); });
}
rw_status rw_work_wait_for(rw_work work, int64_t limit_ns, bool* done) {
  return guarded(__func__,
                 [&] { required(done, "done") = look_up(work)->wait_for(limit_of(limit_ns)); });
}
rw_status rw_work_on_done(rw_work work, rw_done callback, void* context, int64_t timeout_ns) {
  return guarded(__func__, [&] {
    required(callback, "callback");
    const auto tell = [=](const Failure* failure) {
      if (failure == nullptr) return callback(context, nullptr);
      const rw_failure view = view_of(*failure);
      callback(context, &view);
    };
    look_up(work)->on_done(tell, timeout_of(timeout_ns));
  });
}
rw_status rw_work_free(rw_work work) {
  return release(__func__, work);
}

rw_status rw_plan_run(rw_plan plan) {
  return guarded(__func__, [&] { look_up(plan)->run(); });
}
rw_status rw_plan_start(rw_plan plan) {
  return guarded(__func__, [&] { look_up(plan)->start(); });
}
rw_status rw_plan_test(rw_plan plan, bool* done) {
  return guarded(__func__, [&] { required(done, "done") = look_up(plan)->test(); });
}
rw_status rw_plan_wait(rw_plan plan, int64_t timeout_ns) {
  return guarded(__func__, [&] { look_up(plan)->wait(timeout_of(timeout_ns)); });
}
rw_status rw_plan_algorithm(rw_plan plan, const char** name) {
  return guarded(__func__,
                 [&] { required(name, "name") = name_of(look_up(plan)->algorithm()).data(); });
}
rw_status rw_plan_free(rw_plan plan) {
  return release(__func__, plan);
}

}  // extern "C"
