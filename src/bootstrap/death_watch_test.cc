// Ranks as processes that end in all ways, each with nothing but a watch. No threads in the parent:
// it forks.
#include "bootstrap/death_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <optional>
#include <set>

namespace ropewalk::bootstrap {
namespace {

class WatchingRanks {
 public:
  /// All but `stranger` are on one host.
  explicit WatchingRanks(int size, int stranger = -1) : table_(static_cast<size_t>(size)) {
    const DeathWatch owner(size);
    for (int rank = 0; rank < size; ++rank) {
      PeerRecord record;
      record.rank = rank;
      record.pid = getpid();
      record.host_id = rank == stranger ? "there" : "here";
      record.transport_infos.emplace(DeathWatch::kInfo, owner.address());
      table_.set(static_cast<size_t>(rank), std::move(record));
    }
    EXPECT_EQ(pipe(notes_.data()), 0);
    for (int rank = 0; rank < size; ++rank) start(rank);
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(next_note(), (Note{-1, -1}));
    for (const UniqueFd& order : orders_) EXPECT_EQ(::write(order.get(), "b", 1), 1);
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(next_note(), (Note{-1, -1}));
  }
  ~WatchingRanks() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    for (const int fd : notes_) close(fd);
  }
  void signal(int rank, int number) { kill(pids_[static_cast<size_t>(rank)], number); }
  /// 'l': leaves, and its thread ends; 'f': forks a process, which ends.
  void order(int rank, char what) {
    EXPECT_EQ(::write(orders_[static_cast<size_t>(rank)].get(), &what, 1), 1);
    EXPECT_EQ(next_note(), (Note{-1, -1}));
  }
  /// Exactly `by` hear of the deaths of `victims`, and nothing else happens. A victim may hear of
  /// another just before it dies.
  void expect_heard(const std::set<int>& victims, const std::set<int>& by) {
    std::set<std::pair<int, int>> heard;
    while (heard.size() < victims.size() * by.size()) {
      const auto note = next_note();
      ASSERT_TRUE(note) << "somebody has not heard";
      EXPECT_TRUE(victims.contains(note->victim));
      if (victims.contains(note->by)) continue;
      EXPECT_TRUE(by.contains(note->by));
      EXPECT_TRUE(heard.insert({note->victim, note->by}).second);
    }
    expect_silence();
  }
  void expect_silence() {
    if (const auto note = next_note(50)) ADD_FAILURE() << note->by << " heard of " << note->victim;
  }

 private:
  struct Note {
    int victim, by;  // or -1: an order was carried out
    bool operator==(const Note&) const = default;
  };

  void start(int rank) {
    int order[2];
    EXPECT_EQ(pipe(order), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      live(rank, order[0]);
      _exit(0);
    }
    close(order[0]);
    orders_.emplace_back(order[1]);
    pids_.push_back(pid);
  }
  void tell(Note note) {
    [[maybe_unused]] const ssize_t n = ::write(notes_[1], &note, sizeof note);
  }
  void live(int rank, int orders) {
    std::optional<DeathWatch> watch(std::in_place, static_cast<int>(table_.size()));
    std::thread([&] { obey(*watch, rank, orders); }).join();
    watch.reset();
    pause();  // the process lives on
  }
  void obey(DeathWatch& watch, int rank, int orders) {
    watch.enter(table_, rank);
    tell({-1, -1});
    for (char what = 0; what != 'l';) {
      std::array<pollfd, 2> fds{{{orders, POLLIN, 0}, {watch.event_fd(), POLLIN, 0}}};
      poll(fds.data(), fds.size(), -1);
      for (const int victim : watch.take_deaths()) tell({victim, rank});
      if (fds[0].revents == 0) continue;
      if (::read(orders, &what, 1) != 1) return watch.leave();
      if (what == 'b') watch.begin();
      if (what == 'l') watch.leave();
      if (what == 'f') {
        const pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, nullptr, 0);
      }
      tell({-1, -1});
    }
  }
  std::optional<Note> next_note(int timeout_ms = 20'000) {
    pollfd wait{notes_[0], POLLIN, 0};
    Note note{};
    if (poll(&wait, 1, timeout_ms) != 1) return {};
    if (::read(notes_[0], &note, sizeof note) != ssize_t{sizeof note}) return {};
    return note;
  }

  PeerTable table_;
  std::array<int, 2> notes_{};
  std::vector<UniqueFd> orders_;
  std::vector<pid_t> pids_;
};

TEST(DeathWatch, AllOfTheHostHearOfEachDeath) {
  WatchingRanks ranks(5);
  ranks.signal(2, SIGKILL);
  ranks.expect_heard({2}, {0, 1, 3, 4});
  ranks.signal(0, SIGSEGV);
  ranks.expect_heard({0}, {1, 3, 4});
  ranks.signal(1, SIGKILL);  // watches over 3, as 2 is dead
  ranks.expect_heard({1}, {3, 4});
  ranks.signal(4, SIGKILL);
  ranks.expect_heard({4}, {3});
}

TEST(DeathWatch, NeighboursThatDieAtOnceAreBothHeardOf) {
  for (const auto& [first, second] : {std::pair{1, 2}, {2, 1}, {0, 3}, {3, 0}}) {
    WatchingRanks ranks(4);
    ranks.signal(first, SIGSTOP);  // so that both are dead before anybody can tell
    ranks.signal(second, SIGKILL);
    ranks.signal(first, SIGKILL);
    std::set<int> others{0, 1, 2, 3};
    for (const int victim : {first, second}) others.erase(victim);
    ranks.expect_heard({first, second}, others);
  }
}

TEST(DeathWatch, WhoLeavesForksOrIsStoppedHasNotDied) {
  WatchingRanks ranks(4);
  ranks.order(1, 'f');
  ranks.order(1, 'l');
  ranks.signal(3, SIGSTOP);
  ranks.expect_silence();
  ranks.signal(3, SIGCONT);
  ranks.signal(1, SIGKILL);  // has left
  ranks.expect_silence();
  ranks.signal(2, SIGKILL);  // its watcher has left
  ranks.expect_heard({2}, {0, 3});
}

TEST(DeathWatch, RanksOfOtherHostsAreNotWatched) {
  WatchingRanks ranks(3, /*stranger=*/1);
  ranks.signal(1, SIGKILL);
  ranks.expect_silence();
  ranks.signal(2, SIGKILL);
  ranks.expect_heard({2}, {0});
}

}  // namespace
}  // namespace ropewalk::bootstrap
