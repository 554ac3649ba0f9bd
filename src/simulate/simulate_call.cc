#include "simulate/simulate_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <optional>

#include "engine/program.h"
#include "ropewalk/status.h"
#include "simulate/ahead_limit.h"
#include "simulate/picoseconds.h"
#include "simulate/repetition.h"
#include "simulate/steps.h"

namespace ropewalk {
namespace {

static_assert(kSimulatedStepsMax <= kNumberedStepsMax);

/// Whole picoseconds end at 9.2e18. What is added to a time at once is less than the rest.
constexpr int64_t kPicosecondsMax = 4'000'000'000'000'000'000;
constexpr double kMessageSecondsMax = 1e6;

[[noreturn]] void refuse_length() {
  throw Error(ErrorCode::exhausted, "simulate", "it takes longer than times can be told",
              "ask for fewer bytes, or faster links");
}

/// How messages of a call travel, from its sizes.
struct Slicing {
  uint64_t block_bytes = 0, slice_bytes = 0;
  uint32_t slices = 1;
  bool eager = true;

  uint64_t bytes_of(uint32_t slice) const {
    return std::min(slice_bytes, block_bytes - slice * slice_bytes);
  }
};

class Simulator {
 public:
  Simulator(Routes& routes, const CallToSimulate& call, const Slicing& slicing,
            const SimulatedSteps& steps)
      : network_(routes.network()),
        call_(call),
        slicing_(slicing),
        in_(steps),
        begun_(steps.steps.size()),
        ahead_(steps, call.schedules),
        repetition_(steps, slicing.slices, !slicing.eager) {
    at_.done.resize(steps.steps.size());
    at_.streams.resize(steps.streams.size());
    at_.cpus.resize(steps.ranks());
    at_.links.resize(2 * network_.links.size());
    for (const NetworkLink& link : network_.links) {
      link_latency_ps_.push_back(picoseconds(link.all_latency_s()));
      for (const int last : {0, 1}) link_ps_[last].push_back(ps_of(last, link.s_per_byte));
    }
    for (const int last : {0, 1}) {
      copy_ps_[last] = ps_of(last, network_.copy_s_per_byte);
      store_ps_[last] = ps_of(last, network_.within.s_per_byte);
      add_ps_[last] = ps_of(last, network_.add_s_per_byte);
    }
  }

  /// Nothing where rounds were left out and do not repeat.
  std::optional<SimulatedCall> run() {
    for (uint32_t step = 0; step < in_.steps.size(); ++step) pending_.push_back(step);
    run_pending();
    while (!at_.events.empty()) {
      const SimulatedEvent event = at_.pop();
      at_.now_ps = event.ps;
      generation_ = event.key >> kGenerationShift;
      ++report_.events;
      happen(event);
      run_pending();
      repetition_.look(at_);
      if (repetition_.has_failed()) return {};
    }
    check_all_done();
    return finish();
  }

 private:
  void check_all_done() const {
    for (uint32_t step = 0; step < at_.done.size(); ++step)
      if (at_.done[step] != slicing_.slices)
        throw Error(
            ErrorCode::mismatch, "simulate",
            fmt::format("step {} of rank {} never ends", in_.local(step), in_.rank_of[step]),
            "ranks that wait for each other in a circle make no schedule");
  }
  int64_t ps_of(int last, double s_per_byte) const {
    const double seconds =
        static_cast<double>(slicing_.bytes_of(last == 1 ? slicing_.slices - 1 : 0)) * s_per_byte;
    if (seconds > kMessageSecondsMax) refuse_length();
    return picoseconds(seconds);
  }
  int is_last(uint32_t slice) const { return slice + 1 == slicing_.slices ? 1 : 0; }
  const SimulatedStream& stream_of(uint32_t step) const {
    return in_.streams[in_.steps[step].stream];
  }
  /// Added to what is at hand, and to be mapped: not moved.
  static bool adds(StepOp op) { return op == StepOp::send_reduce || op == StepOp::recv_reduce; }
  bool is_exposed(uint32_t step) const {
    return !slicing_.eager && adds(in_.steps[step].op) && stream_of(step).inside;
  }

  void schedule(int64_t ps, EventKind kind, uint32_t step, uint32_t slice, uint32_t hop = 0,
                int64_t tail_ps = 0) {
    if (ps > kPicosecondsMax) refuse_length();
    const uint64_t generation = ps > at_.now_ps ? 0 : std::min(generation_ + 1, kGenerationMax);
    at_.push({ps, event_key(generation, kind, hop, in_.alike(step)), tail_ps, slice, step});
  }
  /// When the CPU of the step's rank has done so much more.
  int64_t work(uint32_t step, int64_t ps) {
    CpuState& cpu = at_.cpus[in_.rank_of[step]];
    cpu.free_ps = std::max(cpu.free_ps, at_.now_ps) + ps;
    cpu.used_ps += ps;
    return cpu.free_ps;
  }

  void happen(const SimulatedEvent& event) {
    using enum EventKind;
    const uint32_t number = in_.steps[event.step].stream;
    StreamState& stream = at_.streams[number];
    switch (kind_of(event.key)) {
      case hop:
        reach_link(event, hop_of(event.key));
        return;
      case arrived:
        ++(slicing_.eager ? stream.unread : stream.arrived);
        break;
      case announced:
        ++stream.unread;
        break;
      case granted:
        ++stream.grants_open;
        break;
      case credited:
        stream.unread -= kCreditBatch;
        break;
      case consumed:
        if (is_exposed(event.step))
          finish_slice(event.step);
        else
          --stream.window_used;
        break;
      case worked:
        end_work(event.step, event.slice);
        return;
      case left:
        finish_slice(event.step);
        return;
    }
    pending_.push_back(event.step);
  }

  /// A message is at link `hop` of its way; at hop 0 it has been posted.
  void reach_link(const SimulatedEvent& event, uint32_t hop) {
    const uint32_t step = event.step;
    const SimulatedStream& stream = stream_of(step);
    const uint32_t partner = in_.steps[step].partner;
    if (stream.inside) {
      if (!is_exposed(step)) finish_slice(step);
      told(step, event.slice, at_.now_ps, at_.now_ps + stream.latency_ps);
      return schedule(at_.now_ps + stream.latency_ps, EventKind::arrived, partner, event.slice);
    }
    const auto way = static_cast<size_t>(in_.paths[stream.path_first + hop]);
    const int64_t busy_ps = link_ps_[is_last(event.slice)][way / 2];
    LinkState& link = at_.links[way];
    const int64_t begin = std::max(at_.now_ps, link.free_ps);
    link.free_ps = begin + busy_ps;
    link.used_ps += busy_ps;
    link.bytes += static_cast<double>(slicing_.bytes_of(event.slice));
    int64_t latency_ps = link_latency_ps_[way / 2];
    if (hop == 0) {
      latency_ps += between_latency_ps_;
      if (slicing_.eager)
        finish_slice(step);
      else
        schedule(link.free_ps, EventKind::left, step, event.slice);
    }
    const int64_t tail_ps = std::max(link.free_ps, event.tail_ps) + latency_ps;
    if (hop + 1u < stream.path_count)
      return schedule(begin + latency_ps, EventKind::hop, step, event.slice, hop + 1, tail_ps);
    told(step, event.slice, at_.now_ps, tail_ps);
    schedule(tail_ps, EventKind::arrived, partner, event.slice);
  }

  void told(uint32_t step, uint32_t slice, int64_t posted_ps, int64_t arrived_ps) {
    ++at_.messages;
    if (!call_.on_message) return;
    const SimulatedStream& stream = stream_of(step);
    call_.on_message({static_cast<int>(stream.rank), stream.peer, stream.lane,
                      in_.steps[step].block, static_cast<double>(slicing_.bytes_of(slice)),
                      1e-12 * static_cast<double>(posted_ps),
                      1e-12 * static_cast<double>(arrived_ps), adds(in_.steps[step].op)});
  }

  void run_pending() {
    for (size_t i = 0; i < pending_.size(); ++i) {
      const uint32_t step = pending_[i];
      const SimulatedStep& at = in_.steps[step];
      if (at.op == StepOp::reduce)
        advance_local(step);
      else if (is_send(at.op))
        advance_sending(at.stream);
      else
        advance_receiving(at.stream);
    }
    pending_.clear();
  }

  bool is_ready(uint32_t step, uint32_t slice, uint32_t deps_end) const {
    for (uint32_t d = in_.deps.first[step]; d < deps_end; ++d)
      if (at_.done[in_.deps.deps[d]] <= slice) return false;
    return true;
  }
  bool is_ready(uint32_t step, uint32_t slice) const {
    return is_ready(step, slice, in_.deps.first[step + 1]);
  }

  void finish_slice(uint32_t step) {
    assert(at_.done[step] < slicing_.slices);
    if (++at_.done[step] == slicing_.slices) ahead_.end(step, pending_);
    last_ps_ = at_.now_ps + repetition_.skipped_ps();
    const StepOp op = in_.steps[step].op;
    if (op == StepOp::recv_reduce || op == StepOp::reduce) report_.added_ps = last_ps_;
    for (uint32_t a = in_.after_first[step]; a < in_.after_first[step + 1]; ++a)
      pending_.push_back(in_.after[a]);
  }
  void end_work(uint32_t step, uint32_t slice) {
    const SimulatedStep& at = in_.steps[step];
    if (at.op == StepOp::recv_reduce && !slicing_.eager)
      schedule(at_.now_ps + stream_of(step).latency_ps, EventKind::consumed, at.partner, slice);
    finish_slice(step);
  }
  /// Keeps the CPU, then `end_work`.
  void work_on(uint32_t step, uint32_t slice, int64_t ps) {
    const int64_t end = work(step, ps);
    if (end == at_.now_ps)
      end_work(step, slice);
    else
      schedule(end, EventKind::worked, step, slice);
  }

  void advance_local(uint32_t step) {
    while (begun_[step] < slicing_.slices && is_ready(step, begun_[step])) {
      const uint32_t slice = begun_[step]++;
      work_on(step, slice, add_ps_[is_last(slice)]);
    }
  }

  void post(uint32_t step, uint32_t slice) {
    const int last = is_last(slice);
    int64_t ps = picoseconds(network_.between.overhead_s) + copy_ps_[last];
    if (stream_of(step).inside)
      ps = picoseconds(network_.within.overhead_s) + (is_exposed(step) ? 0 : store_ps_[last]);
    schedule(work(step, ps), EventKind::hop, step, slice);
  }
  /// An announcement or a grant.
  void tell(uint32_t step, EventKind kind) {
    const SimulatedStream& stream = stream_of(step);
    const LinkCost& cost = stream.inside ? network_.within : network_.between;
    schedule(work(step, picoseconds(cost.overhead_s)) + stream.latency_ps, kind,
             in_.steps[step].partner, 0);
  }

  void advance_sending(uint32_t number) {
    const SimulatedStream& in = in_.streams[number];
    StreamState& stream = at_.streams[number];
    for (; stream.head < in.count; ++stream.head) {
      const uint32_t step = in_.in_streams[in.first + stream.head];
      if (!stream.announced) {
        if (slicing_.eager && (!is_ready(step, 0) || ahead_.holds_back(step))) return;
        if (stream.unread == kUnreadMax && !call_.in_list_order) return;
        ++stream.unread;
        if (slicing_.eager) {
          post(step, 0);
          continue;
        }
        tell(step, EventKind::announced);
        stream.announced = true;
      }
      if (!send_slices(step, stream)) return;
      stream.announced = false;
      stream.slice = 0;
    }
  }
  bool send_slices(uint32_t step, StreamState& stream) {
    const bool exposed = is_exposed(step);
    const bool windowed = !exposed && adds(in_.steps[step].op);
    for (; stream.slice < slicing_.slices; ++stream.slice) {
      if (!is_ready(step, stream.slice) || ahead_.holds_back(step)) return false;
      if (!exposed && stream.grants_open == 0) return false;
      if (windowed && stream.window_used == kWindowSlots) return false;
      if (windowed) ++stream.window_used;
      post(step, stream.slice);
    }
    if (!exposed) --stream.grants_open;
    return true;
  }

  void advance_receiving(uint32_t number) {
    const SimulatedStream& in = in_.streams[number];
    StreamState& stream = at_.streams[number];
    if (!slicing_.eager) issue_grants(in, stream);
    for (; stream.head < in.count; ++stream.head) {
      const uint32_t step = in_.in_streams[in.first + stream.head];
      if (!stream.announced) {
        if (stream.unread == 0 || (slicing_.eager && !is_ready(step, 0))) return;
        --stream.unread;
        give_credit(step, stream);
        if (slicing_.eager) {
          work_on(step, 0, taking_ps(step, 0));
          continue;
        }
        stream.announced = true;
      }
      if (!take_slices(step, stream)) return;
      if (!is_exposed(step)) --stream.grants_open;
      stream.announced = false;
      stream.slice = 0;
    }
  }
  void issue_grants(const SimulatedStream& in, StreamState& stream) {
    for (; stream.grant_head < in.count; ++stream.grant_head) {
      const uint32_t step = in_.in_streams[in.first + stream.grant_head];
      if (is_exposed(step)) continue;
      if (stream.grants_open == kGrants) return;
      const bool direct = !adds(in_.steps[step].op);
      if (direct && !is_ready(step, slicing_.slices - 1, in_.deps.grants_end[step])) return;
      ++stream.grants_open;
      tell(step, EventKind::granted);
    }
  }
  void give_credit(uint32_t step, StreamState& stream) {
    if (++stream.owed < kCreditBatch) return;
    stream.owed = 0;
    schedule(at_.now_ps + stream_of(step).latency_ps, EventKind::credited, in_.steps[step].partner,
             0);
  }
  bool take_slices(uint32_t step, StreamState& stream) {
    const bool direct = !adds(in_.steps[step].op);
    for (; stream.slice < slicing_.slices; ++stream.slice) {
      if (stream.arrived == 0) return false;
      if (!direct && !is_ready(step, stream.slice)) return false;
      --stream.arrived;
      work_on(step, stream.slice, taking_ps(step, stream.slice));
    }
    return true;
  }
  int64_t taking_ps(uint32_t step, uint32_t slice) const {
    const int last = is_last(slice);
    const int64_t adding = adds(in_.steps[step].op) ? add_ps_[last] : 0;
    if (stream_of(step).inside) return adding;
    return adding + copy_ps_[last] + picoseconds(network_.receive_s);
  }

  SimulatedCall finish() {
    report_.ps = last_ps_;
    report_.messages = at_.messages * in_.ranks_each;
    report_.ranks_run = static_cast<int>(in_.ranks());
    for (const CpuState& cpu : at_.cpus) report_.cpu_ps = std::max(report_.cpu_ps, cpu.used_ps);
    for (size_t way = 0; way < at_.links.size(); ++way)
      if (at_.links[way].used_ps > 0 || at_.links[way].bytes > 0)
        report_.links.push_back({static_cast<LinkWay>(way),
                                 1e-12 * static_cast<double>(at_.links[way].used_ps),
                                 at_.links[way].bytes});
    std::ranges::stable_sort(report_.links, std::greater(), &LinkLoad::busy_s);
    return std::move(report_);
  }

  const Network& network_;
  const CallToSimulate& call_;
  const Slicing slicing_;
  const SimulatedSteps& in_;
  const int64_t between_latency_ps_ = picoseconds(network_.between.latency_s);
  // Of a whole slice, and of the last one.
  std::vector<int64_t> link_ps_[2];
  int64_t copy_ps_[2], store_ps_[2], add_ps_[2];
  std::vector<int64_t> link_latency_ps_;
  SimulationState at_;
  std::vector<uint32_t> begun_;    // slices, by local step
  std::vector<uint32_t> pending_;  // steps whose streams may go on
  AheadLimit ahead_;
  Repetition repetition_;
  int64_t last_ps_ = 0;
  uint64_t generation_ = 0;
  SimulatedCall report_;
};

Slicing slicing_of(const CallToSimulate& call) {
  const ScheduleKey& key = call.key;
  const int count =
      call.schedules != nullptr
          ? call.schedules->front().blocks
          : descriptor_of(key.algorithm).blocks(key.collective, hosts_of(key.hosts, key.ranks));
  const auto blocks = static_cast<uint64_t>(count);
  Slicing slicing;
  slicing.block_bytes = (call.bytes + blocks - 1) / blocks;
  slicing.eager = slicing.block_bytes <= call.eager_bytes_max;
  slicing.slice_bytes = slicing.eager ? slicing.block_bytes : std::max<size_t>(call.slice_bytes, 1);
  if (!slicing.eager) slicing.slices = slices_of(slicing.block_bytes, slicing.slice_bytes);
  return slicing;
}

}  // namespace

SimulatedCall simulate_call(Routes& routes, const CallToSimulate& call) {
  constexpr uint32_t kRoundsFirst = 4, kRoundsMost = 64;
  assert(routes.network().ranks() == call.key.ranks);
  if (call.key.ranks == 1) return {.ranks_run = 1, .links = {}};
  const Slicing slicing = slicing_of(call);
  const uint32_t credits =
      call.schedules != nullptr ? 1 : descriptor_of(call.key.algorithm).list_order_credits;
  const bool in_list_order =  // as can_run_sequential (engine/program.h)
      call.in_list_order ||
      (slicing.block_bytes <= kSequentialBytesMax && credits <= kCreditBatch + 1);
  // Where what repeats itself is not found in so many rounds, it is sought in more.
  StepsWanted wanted{in_list_order,
                     std::min(kSimulatedStepsMax, call.messages_max / slicing.slices),
                     kRoundsFirst};
  for (;; wanted.rounds = wanted.rounds < kRoundsMost ? 4 * wanted.rounds : 0) {
    const SimulatedSteps steps = steps_of(routes, call, wanted);
    if (auto simulated = Simulator(routes, call, slicing, steps).run()) return *simulated;
  }
}

}  // namespace ropewalk
