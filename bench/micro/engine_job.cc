#include "engine_job.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "engine/executors.h"
#include "transports/fake/forwarding_transport.h"

namespace ropewalk::micro {
namespace {

/// Adds nothing: the kernels are measured by themselves.
void add_nothing(void*, const void*, size_t, DataType, void*) {}

class Recorder final : public ForwardingTransport {
 public:
  Recorder(Transport& below, int rank, std::vector<TransportCall>& calls)
      : ForwardingTransport(below), rank_(rank), calls_(calls) {}
  Posted put(const PutRequest& request) override {
    calls_.push_back({rank_, true, request});
    return below_.put(request);
  }
  size_t poll(std::span<Completion> into) override {
    TransportCall call;
    call.rank = rank_;
    calls_.push_back(call);
    return below_.poll(into);
  }

 private:
  const int rank_;
  std::vector<TransportCall>& calls_;
};

}  // namespace

class EngineJob::NoFailures final : public Monitor {
 public:
  const Failure* failure() const noexcept override { return nullptr; }
  void report(const Failure& failure) override {
    std::fprintf(stderr, "%s\n", failure.text().c_str());
    std::abort();  // nothing that is measured can fail
  }
  bool has_left(int) const noexcept override { return false; }
  int event_fd() const noexcept override { return -1; }
};

EngineJob::EngineJob(const EngineCase& c, std::vector<TransportCall>* calls)
    : case_(c),
      // Slices stay where they are: how fast memory is copied is another question.
      fabric_(c.ranks, {.load_store = c.mapped, .moved_bytes_max = 1024}),
      monitor_(std::make_unique<NoFailures>()) {
  const std::vector<int> route(static_cast<size_t>(c.ranks), 0);
  for (int rank = 0; rank < c.ranks; ++rank) {
    Transport* transport = &fabric_.transport(rank);
    if (calls != nullptr) {
      recorders_.push_back(std::make_unique<Recorder>(*transport, rank, *calls));
      transport = recorders_.back().get();
    }
    registries_.push_back(std::make_unique<MemoryRegistry>());
    engines_.push_back(std::make_unique<LoneEngine>(rank, c.ranks,
                                                    std::vector<Transport*>{transport}, route,
                                                    *registries_.back(), *monitor_, clock_));
    buffers_.push_back(std::make_shared<RegisteredMemory>(c.bytes));
    buffers_.back()->register_with(*transport);
    registries_.back()->add(buffers_.back());
    Call call;
    call.collective = c.collective;
    call.in = call.out = buffers_.back()->data();
    call.count = c.bytes / sizeof(float);
    call.op = {ReduceKind::user, 1, add_nothing, nullptr};
    const Schedule schedule = build_schedule({c.collective, c.algorithm, c.ranks, 0, route}, rank);
    operations_.push_back(engines_.back()->prepare(call, schedule, c.algorithm, c.slice_bytes));
    if (c.driven) {
      ProgressOptions options;
      options.progress_thread = false;
      drivers_.push_back(std::make_unique<LoneDriver>(*engines_.back(), clock_, options));
      groups_.push_back(std::make_unique<Group>());
      groups_.back()->add(operations_.back());
    }
  }
}

EngineJob::~EngineJob() = default;

void EngineJob::start(int rank) {
  const auto r = static_cast<size_t>(rank);
  if (case_.driven)
    drivers_[r]->start(*groups_[r], false);
  else
    engines_[r]->start(*operations_[r]);
}

bool EngineJob::advance(int rank) {
  const auto r = static_cast<size_t>(rank);
  if (case_.driven) return drivers_[r]->test(*groups_[r]);
  engines_[r]->progress();
  return operations_[r]->state == Operation::State::done;
}

void EngineJob::run() {
  for (int rank = 0; rank < case_.ranks; ++rank) start(rank);
  for (bool done = false; !done;) {
    done = true;
    for (int rank = 0; rank < case_.ranks; ++rank) done &= advance(rank);
  }
}

void EngineJob::replay(const std::vector<TransportCall>& calls) {
  std::array<Completion, 64> completions;
  for (const TransportCall& call : calls) {
    Transport& transport = fabric_.transport(call.rank);
    if (call.is_put)
      transport.put(call.put);
    else
      transport.poll(completions);
  }
}

size_t EngineJob::steps() const {
  size_t steps = 0;
  for (const auto& operation : operations_) {
    const Executor* executor = operation->executor.get();
    const auto count = [&](const Program& program) {
      for (const ProgramStep& step : program.steps) steps += step.slices;
    };
    if (const auto* sequential = dynamic_cast<const SequentialExecutor*>(executor))
      count(sequential->program());
    if (const auto* pipelined = dynamic_cast<const PipelinedExecutor*>(executor))
      count(pipelined->program());
    if (const auto* owner = dynamic_cast<const OwnerExecutor*>(executor))
      for (const OwnedBlock& block : owner->program().owned)
        steps += 2 * block.slices * (block.sources.size() + block.targets.size());
  }
  return steps;
}

}  // namespace ropewalk::micro
