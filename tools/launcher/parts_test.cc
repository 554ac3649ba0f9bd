// The launcher's parts that need no process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "ropewalk/status.h"
#include "tools/command/cli.h"
#include "tools/launcher/binding.h"
#include "tools/launcher/frames.h"
#include "tools/launcher/hosts.h"
#include "tools/launcher/job_part.h"
#include "tools/launcher/launcher_state.h"
#include "tools/launcher/output.h"
#include "tools/launcher/rank_environment.h"

namespace ropewalk::tools {
namespace {

using testing::ElementsAre;

TEST(Hosts, Parses) {
  EXPECT_THAT(parse_hosts("a:2,user@b,[fe80::1]:3,[::2]"),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"user@b", 1}, HostSlots{"fe80::1", 3},
                          HostSlots{"::2", 1}));
}

TEST(Hosts, RefusesAndQuotesWhatIsWrong) {
  for (const char* text :
       {"",     ",",  "a,",  ":2",  "a:",   "a:0",  "a:-1",   "a:2x", "a:99999999999", "-v",
        "u@-v", "a@", "a;b", "a b", "$(x)", "[::1", "[::1]2", "::1",  "a:1:2",         "a,a"}) {
    EXPECT_THROW(parse_hosts(text), Error) << text;
  }
  try {
    parse_hosts("good,bad:zero");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("\"bad:zero\""));
  }
}

TEST(Hosts, AssignsInOrder) {
  EXPECT_THAT(assign_ranks(parse_hosts("a:2,b:2,c:2"), 3),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 1}));
  EXPECT_THAT(assign_ranks(parse_hosts("a:2,b:2,c:2"), 3, true),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 1, 1}, HostSlots{"c", 0, 2}));
  EXPECT_EQ(assign_ranks(parse_hosts("a:2,b:2"), 0).size(), 2U);
  EXPECT_THROW(assign_ranks(parse_hosts("a:2"), 3), Error);
}

TEST(Hosts, QuotesForTheShell) {
  EXPECT_EQ(shell_quote("/a b/$x"), "'/a b/$x'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
}

TEST(JobPart, SurvivesTheTrip) {
  JobPart part;
  part.size = 7;
  part.first_rank = 2;
  part.ranks = 3;
  part.slots = 5;
  part.first_local_rank = 1;
  part.local_size = 4;
  part.local_slots = 6;
  part.launcher_timeout_ms = 26'000;
  part.listen = part.forward_stdin = true;
  part.job_key = "key";
  part.workdir = "/a dir";
  part.program = {"prog", "", "with\nline feed", "\xff\xfe"};
  part.environment = {"A=1", "B="};
  EXPECT_EQ(decode_job_part(encode(part)), part);
}

TEST(JobPart, EveryCutIsRefused) {
  JobPart part;
  part.size = part.ranks = part.slots = part.local_size = part.local_slots = 1;
  part.program = {"prog"};
  part.environment = {"A=1"};
  const std::string bytes = encode(part);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(decode_job_part(bytes.substr(0, length)), Error) << length;
  }
}

// 600 ranks here need three agents of 250; another machine has the limit of its own.
TEST(JobPart, ManyRanksOfThisMachineHaveSeveralAgents) {
  JobSpec job;
  job.program = {"prog"};
  job.ranks = 600;
  const std::vector<Host> hosts = hosts_of(job, 250);
  ASSERT_EQ(hosts.size(), 3u);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const JobPart part = part_of(job, hosts, hosts[i]);
    EXPECT_EQ(part.size, 600);
    EXPECT_EQ(part.first_rank, static_cast<int>(250 * i));
    EXPECT_EQ(part.ranks, i < 2 ? 250 : 100);
    EXPECT_EQ(part.first_local_rank, part.first_rank);
    EXPECT_EQ(part.local_size, 600);
    EXPECT_EQ(part.listen, i == 0);
    EXPECT_TRUE(part.loopback);
    const auto environment = rank_environment(part, {.index = 1, .coordinator = "h:1"});
    EXPECT_THAT(environment,
                testing::IsSupersetOf({fmt::format("ROPEWALK_LOCAL_RANK={}", 250 * i + 1),
                                       std::string("ROPEWALK_LOCAL_SIZE=600")}));
  }
  job.hosts = {{"far", 300}, {"127.0.0.1", 300}};
  EXPECT_EQ(hosts_of(job, 1000).size(), 2u);
  EXPECT_EQ(hosts_of(job, 250)[0].ranks, 300);
  EXPECT_EQ(ranks_per_agent(1024), 334);
  EXPECT_EQ(ranks_per_agent(3), 1);
  EXPECT_GE(ranks_per_agent(RLIM_INFINITY), 65'536);
}

struct Line {
  Line() {
    int ends[2];
    if (pipe(ends) == 0) reader = FrameChannel(UniqueFd(ends[0]), UniqueFd(dup(STDERR_FILENO)));
    writer = UniqueFd(ends[1]);
  }
  void write(std::string_view bytes) {
    EXPECT_EQ(::write(writer.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_TRUE(reader.receive());
  }
  FrameChannel reader;
  UniqueFd writer;
};

const std::string kSignalFrame(
    "\x02\0\0\0\x02\xff\xff\xff\xff"
    "15",
    11);

TEST(Frames, ComeOutWholeWhateverTheCuts) {
  Line line;
  line.write(kSignalFrame.substr(0, 3));
  EXPECT_FALSE(line.reader.next());
  line.write(kSignalFrame.substr(3) + kSignalFrame);
  for (int i = 0; i < 2; ++i) {
    const auto frame = line.reader.next();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->kind, FrameKind::signal);
    EXPECT_EQ(frame->rank, -1);
    EXPECT_EQ(frame->payload, "15");
  }
  EXPECT_FALSE(line.reader.next());
}

TEST(Frames, NoiseBeforeTheGreetingIsSkipped) {
  Line line;
  line.reader.expect_greeting();
  line.write("Welcome to host a\n\nropewalk-ag");
  EXPECT_FALSE(line.reader.next());
  line.write(fmt::format("ent {}\n", kAgentVersion) + kSignalFrame);
  EXPECT_TRUE(line.reader.next());
}

TEST(Frames, OtherVersionsAndNonsenseAreRefused) {
  Line other;
  other.reader.expect_greeting();
  other.write("\nropewalk-agent 1\n");
  EXPECT_THROW(other.reader.next(), Error);
  Line huge;
  huge.write(std::string("\xff\xff\xff\x7f\x02\0\0\0\0", 9));
  EXPECT_THROW(huge.reader.next(), Error);
  Line unknown;
  unknown.write(std::string("\0\0\0\0\x63\0\0\0\0", 9));
  EXPECT_THROW(unknown.reader.next(), Error);
}

std::string drained(OutputQueue& queue, int fd) {
  std::string text;
  char bytes[4096];
  while (!queue.empty()) {
    queue.write_some();
    text.append(bytes, static_cast<size_t>(::read(fd, bytes, sizeof bytes)));
  }
  return text;
}

TEST(LinePrefixer, CutsLongLinesAndEndsPartialOnes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  OutputQueue queue(writer.get());
  LinePrefixer lines("[7] ");
  lines.feed("a\n\nb", queue);
  lines.feed("c", queue);
  lines.end(queue);
  EXPECT_EQ(drained(queue, reader.get()), "[7] a\n[7] \n[7] bc\n");
  const std::string part(LinePrefixer::kLineBytesMax, 'x');
  lines.feed(part + "y\n", queue);
  lines.end(queue);
  EXPECT_EQ(drained(queue, reader.get()), "[7] " + part + "\n[7] y\n");
}

TEST(RankEnvironment, LaterEntriesReplaceEarlierOnes) {
  setenv("ROPEWALK_COORDINATOR_FD", "5", 1);
  setenv("PARTS_TEST", "old", 1);
  JobPart part;
  part.size = 4;
  part.first_rank = 2;
  part.ranks = 2;
  part.local_size = 2;
  part.environment = {"PARTS_TEST=new"};
  const auto environment = rank_environment(part, {.index = 1, .coordinator = "h:1"});
  EXPECT_THAT(environment,
              testing::IsSupersetOf({"PARTS_TEST=new", "ROPEWALK_RANK=3", "ROPEWALK_SIZE=4",
                                     "ROPEWALK_LOCAL_RANK=1", "ROPEWALK_LOCAL_SIZE=2"}));
  for (const std::string& entry : environment) {
    EXPECT_FALSE(entry.starts_with("ROPEWALK_COORDINATOR_FD=")) << entry;
    EXPECT_NE(entry, "PARTS_TEST=old");
  }
}

TEST(Binding, GivesEachRankACpuOfItsOwnOrNone) {
  EXPECT_EQ(cpus_for_ranks(1).size(), 1U);
  EXPECT_TRUE(cpus_for_ranks(CPU_SETSIZE + 1).empty());
}

TEST(Cli, SuggestsTheNearestWord) {
  EXPECT_EQ(nearest_word("bensh", {"run", "bench", "verify"}), "bench");
  EXPECT_EQ(nearest_word("verfy", {"run", "bench", "verify"}), "verify");
  EXPECT_EQ(nearest_word("zzzzzz", {"run", "bench", "verify"}), "");
}

}  // namespace
}  // namespace ropewalk::tools
