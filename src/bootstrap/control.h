// The one control thread of a World: joins, then watches, relays and dials.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/agreement_control.h"
#include "bootstrap/bypass.h"
#include "bootstrap/death_watch.h"
#include "bootstrap/dialer.h"
#include "bootstrap/host_probe.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/part_control.h"
#include "bootstrap/predecessor.h"
#include "bootstrap/registrar.h"
#include "bootstrap/socket_broker.h"
#include "bootstrap/statements.h"
#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {

inline constexpr const char* kFirewallAdvice =
    "is a firewall between the hosts? ROPEWALK_SOCKET_IFNAME chooses the interface";

/// What the control thread starts from.
struct ControlSetup {
  int rank = 0;
  int size = 2;
  Config config;
  PeerRecord record;  // this rank's
  std::unique_ptr<DeathWatch> death_watch;
  std::vector<UniqueFd> listeners;
  std::vector<UniqueFd> coordinator_listeners;  // rank 0
  std::vector<SocketAddress> coordinator;       // ranks other than 0
  std::vector<size_t> coordinator_names;        // by address, as Dialer's
  std::string coordinator_text;                 // for messages
  int64_t deadline_ns = 0;                      // of joining
  std::shared_ptr<Predecessor> predecessor;     // of a next epoch

  /// How long last words may take: who leaves has no more to do.
  std::chrono::nanoseconds flush_limit() const {
    return std::min<std::chrono::nanoseconds>(config.link_timeout, std::chrono::seconds(1));
  }
  /// For hosts to answer, of which one has fallen silent.
  std::chrono::nanoseconds probe_limit() const {
    return std::min<std::chrono::nanoseconds>(config.timeout / 8, std::chrono::seconds(2));
  }
  /// The addresses that rank 0 has now; false: none, `why` says.
  bool look_up_coordinator(std::string& why);
  double timeout_s() const { return std::chrono::duration<double>(config.timeout).count(); }
};

/// The thread runs from construction to destruction and sleeps in poll when nothing happens. All
/// members except those under "shared" belong to it alone; but while it sleeps, to `renew`.
/// `monitor`, `parts` and `socket_broker` must outlive this object.
///
/// Joining, on a rank other than 0: dial the coordinator, or a rank of this host that passes it on
/// (see Registrar), and send Join; on Redirect to another rank instead; on Place dial the tree
/// parent; take the records that come down the tree and pass them on; when all children are linked
/// and ready, say so upwards; on Go the rank has joined. Rank 0: see Registrar; then the same tree
/// steps from the top.
class Control {
 public:
  Control(ControlSetup setup, JobMonitor& monitor, Parts& parts, SocketBroker& socket_broker);
  /// Without a leave or a failure before: tells the others that this rank gave up.
  ~Control();
  /// Begins what the destructor waits for.
  void close();

  /// Blocks until every rank has joined; throws Error with the job's failure. The control thread
  /// keeps the deadline.
  void wait_joined();
  /// Announces the leave; returns when all have left, or after the timeout; on failure as soon as
  /// the neighbours' kernels know of it, at most after a second.
  void leave(const CallsMade& calls);
  /// The next agreement of `setup.members`, all of which call this, with equal deadlines. Blocks
  /// until its end: at `deadline_ns` (monotonic) at the latest.
  AgreementEnd agree(Agreement::Setup setup, int64_t deadline_ns);
  /// The world has failed, and an agreement has found that `members` go on: so they do, over the
  /// connections that there are, once each of them has called this. Nothing is to be heard of the
  /// others any more. Returns the monitor of that epoch. Throws Error where the thread has ended.
  std::shared_ptr<EpochMonitor> renew(std::vector<int> members);
  /// Who joins the next epoch is to hear of who has ended; null: nobody any more.
  void set_successor(std::shared_ptr<Predecessor> successor);
  /// All who wait at this rank to join the job; the others are told.
  void tell_newcomers(std::vector<uint32_t> numbers);
  /// All who wait, as far as this rank has heard.
  std::vector<Newcomer> newcomers();
  /// Complete and constant once joined.
  const PeerTable& table() const { return table_; }

 private:
  // control.cc: the loop.
  void run();
  void prepare(int64_t now_ns);
  void advance(int64_t now_ns);
  bool finished(int64_t now_ns);
  bool owes_late_ranks(int64_t now_ns) const;
  /// Nothing that was sent waits to be acknowledged, and no parent in the tree for a first word.
  bool flushed() const;
  bool is_half_linked() const { return parent_dial_ && parent_dial_->awaits_answer(); }
  bool owes_rank_zero() const;
  void notify_waiters();
  void fail(ErrorCode code, std::string reason, std::string advice, int peer = -1);
  void check_descriptors(int64_t now_ns);
  void note_deaths(int64_t now_ns);
  void advance_agreements(int64_t now_ns);
  void begin_epoch(const std::vector<int>& members, int64_t now_ns);
  void draw_key_pairs(int64_t now_ns);
  void check_predecessor();
  void spread_newcomers();
  void take_newcomers(int peer, const Frame& frame);
  void fail_protocol(std::string reason, int peer);

  // control_sockets.cc: the acceptor's incoming and the socket_broker's dials.
  void admit(AuthenticatedSocket& incoming, int64_t now_ns);
  HandshakeResult judge_join(const AuthenticatedSocket& incoming);
  HandshakeResult judge_tree(const AuthenticatedSocket& incoming) const;
  void link(int peer, ConnectedSocket socket, int64_t now_ns);
  void advance_new_parent(int64_t now_ns);
  void advance_host_probe(int64_t now_ns);
  void advance_bypass(int64_t now_ns);
  std::unique_ptr<Dialer> dial(Purpose purpose, int peer, int stream);
  void advance_dials(int64_t now_ns);
  Hello hello_for(Purpose purpose, int to, int stream) const;
  std::vector<SocketAddress> addresses_of(int peer) const;

  // control_join.cc: joining.
  void start_joining();
  void find_registrar(int64_t now_ns);
  void dial_coordinator();
  void look_up_again(int64_t now_ns);
  void advance_joining(int64_t now_ns);
  void advance_registrar(int64_t now_ns);
  void advance_local_registrar(int64_t now_ns);
  int64_t gathered_until_ns() const;
  /// It has not joined at rank 0 itself.
  bool is_through_other() const { return is_through_local_ || is_through_leader_; }
  /// Whom this rank has joined with; -1: a local registrar, of which it knows the pid alone.
  int registrar_rank() const { return is_through_local_ ? -1 : is_through_leader_ ? leader_ : 0; }
  void advance_coordinator_dial(int64_t now_ns);
  void join_at_registrar(ConnectedSocket socket, int64_t now_ns);
  void advance_registration(int64_t now_ns);
  void take_place(const Frame& frame);
  void follow_redirect(const Frame& frame, int64_t now_ns);
  void send_joined(std::vector<Registrar::Joined> joined, int64_t now_ns);
  void advance_parent_dial(int64_t now_ns);
  void handle_join_frame(int peer, const Frame& frame);
  void take_records(const Frame& frame);
  void pass_on_readiness(int64_t now_ns);
  void finish_joining(int64_t now_ns);
  int64_t join_deadline_ns() const;
  void check_join_deadline(int64_t now_ns);
  void spread_join_failure();
  void mark_phase(std::string name);
  int own_parent() const { return tree_parent(setup_.rank, setup_.size); }

  ControlSetup setup_;
  JobMonitor& monitor_;
  SocketBroker& socket_broker_;
  const MonotonicClock clock_;
  const Key job_key_;
  PeerTable table_;
  Statements statements_;
  PollSet set_;
  Acceptor acceptor_;
  Tree tree_;
  Bypass bypass_;
  PartControl part_control_;
  AgreementControl agreements_;

  // Joining.
  std::optional<Registrar> registrar_;        // rank 0
  std::optional<PeerTable> local_table_;      // of the next; before it has begun: none
  std::optional<Registrar> local_registrar_;  // where others join through this rank
  int64_t listening_since_ns_ = 0;            // when it began to listen
  size_t gathered_ = 0;                       // of what it has not passed on, as last seen
  int64_t gathered_first_ns_ = 0, gathered_last_ns_ = 0;  // when the first, the last of that came
  std::unique_ptr<Dialer> coordinator_dial_;              // other ranks
  bool is_dialing_local_ = false;  // not the coordinator itself, but a local registrar
  int64_t local_until_ns_ = 0;     // so long a local registrar is looked for
  int64_t look_up_next_ns_ = 0;    // the coordinator's name
  bool waiting_told_ = false;
  std::optional<FrameStream> registration_;   // other ranks, once they are taken
  bool is_through_local_ = false;             // by a local registrar
  int leader_ = -1;                           // a rank to which rank 0 has sent this one
  int64_t leader_until_ns_ = 0;               // so long that is dialed; 0: it is not
  bool is_through_leader_ = false;            // by that
  std::vector<Registrar::Joined> passed_on_;  // by a local registrar; until it has its place
  std::string registrar_text_;                // by whom, for messages
  std::optional<SocketAddress> coordinator_;  // the address that answered
  SocketAddress coordinator_seen_from_;       // this host's, on the way to that
  std::unique_ptr<Dialer> parent_dial_;
  std::optional<Key> session_key_;  // once this rank has its place
  Digest whole_digest_ = {};        // of the table, as rank 0 told it
  int records_known_ = 0;           // rows of table_ that came, in rank order
  std::vector<std::shared_ptr<const Bytes>> record_frames_;  // in which they came, for children;
                                                             // until all have joined
  Digest known_digest_ = {};                                 // of those
  std::set<int> children_not_ready_;
  bool ready_sent_ = false;
  bool join_failure_spread_ = false, registrar_told_ = false;
  bool is_joined_ = false;
  std::string phases_;  // "registered 1.2 ms, ..."
  const int64_t start_ns_;
  int64_t phase_start_ns_;

  std::vector<int> deaths_;                // as the last round has found them
  std::map<int, int64_t> distant_deaths_;  // of no neighbours: since when they are known
  std::map<SocketBroker::SocketId, std::unique_ptr<Dialer>> dials_;
  std::optional<HostProbe> host_probe_;       // while the monitor has a silence
  std::map<uint32_t, Bytes> newcomers_told_;  // by rank: the last frame that says who waits there
  int new_parent_ = -1;                       // whom parent_dial_ dials, once joined
  int64_t new_parent_deadline_ns_ = 0;
  int64_t key_pairs_at_ns_ = 0;   // when key pairs for the next epoch are drawn; 0: not
  int64_t closing_since_ns_ = 0;  // when stop_ was seen, or afterwards a rank came to join
  std::set<uint32_t> came_;       // rank 0: ranks that have come to join, however that ended

  // Shared with the threads that call the public members.
  std::mutex turn_;  // the thread's, but where it sleeps; taken before mutex_
  Event wake_;
  std::atomic<bool> stop_{false}, leave_{false};
  CallsMade calls_;  // set before leave_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool joined_ = false;     // guarded by mutex_
  bool all_left_ = false;   // guarded by mutex_
  bool over_ = false;       // guarded by mutex_: a failure, or the thread has ended
  bool told_ = false;       // guarded by mutex_: nothing of that failure remains to be sent
  bool has_ended_ = false;  // guarded by mutex_: the thread
  struct AgreementCall {
    Agreement::Setup setup;
    int64_t deadline_ns;
  };
  std::optional<AgreementCall> agreement_call_;  // guarded by mutex_
  std::optional<AgreementEnd> agreement_end_;    // guarded by mutex_
  bool is_renewed_ = false;                      // guarded by turn_: while the thread slept
  std::shared_ptr<Predecessor> successor_;       // guarded by mutex_
  std::map<uint32_t, Newcomers> newcomers_;      // by rank; guarded by mutex_
  bool newcomers_are_new_ = false;               // guarded by mutex_: of this rank

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ropewalk::bootstrap
