// The `ropewalk` program as a whole; its path is the first argument.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/support/sanitized.h"
#include "tools/command/command_testing.h"

namespace {

using ropewalk::tools::shell::Outcome;
using ropewalk::tools::shell::program;
using ropewalk::tools::shell::run;
using testing::AllOf;
using testing::HasSubstr;

TEST(Command, VersionAndHelp) {
  EXPECT_THAT(run("--version").out, HasSubstr("ropewalk "));
  EXPECT_EQ(run("version").out, run("--version").out);
  EXPECT_EQ(run("").out, run("--help").out);
  EXPECT_EQ(run("").status, 0);
  EXPECT_EQ(run("help").out, run("--help").out);
  EXPECT_EQ(run("help bench put").out, run("bench put --help").out);
  EXPECT_EQ(run("help bensh 2>&1").status, 2);
  for (const char* name : {"run", "mpi", "bench", "tune", "explain", "simulate", "verify", "doctor",
                           "env", "completion"}) {
    EXPECT_THAT(run("--help").out, HasSubstr(name));
    const Outcome help = run(std::string(name) + " --help");
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("Examples:")) << name;
  }
  for (const char* name : {"put", "pingpong", "signal"}) {
    EXPECT_THAT(run("bench --help").out, HasSubstr(name));
    EXPECT_THAT(run(std::string("bench ") + name + " --help").out, HasSubstr("Examples:"));
  }
}

TEST(Command, BenchWithoutACollectiveListsThem) {
  const Outcome outcome = run("bench 2>&1");
  EXPECT_EQ(outcome.status, 2);
  for (const char* name : {"all_reduce", "barrier", "send_recv", "put", "signal"})
    EXPECT_THAT(outcome.out, HasSubstr(name));
}

TEST(Command, WrongInputIsStatus2Everywhere) {
  for (const char* words : {"bensh",
                            "--bogus",
                            "bench all_redcue",
                            "bench all_reduce --sizes x",
                            "bench --op user",
                            "bench all_reduce --timeout soon",
                            "bench barrier --in-place --out-of-place",
                            "bench put -n 1",
                            "bench broadcast -n 2 --root 2",
                            "bench all_gather --algorithm tree",
                            "explain all_reduce",
                            "explain all_reduce --bytes 0",
                            "explain all_reduce --bytes 8 --rank 2",
                            "explain all_gather --bytes 8 --algorithm tree",
                            "simulate all_reduce",
                            "simulate all_reduce --bytes 0",
                            "simulate all_reduce --bytes 8 --network ring",
                            "simulate all_reduce --bytes 8 --network ./missing.json",
                            "simulate all_reduce --bytes 8 -n 9 --network racks:2x2",
                            "simulate broadcast --bytes 8 -n 2 --root 2",
                            "simulate all_gather --bytes 8 --algorithm tree",
                            "simulate all_reduce --step ./missing.json",
                            "verify --ranks 4:1",
                            "doctor --coordinator node1",
                            "run -n 2",
                            "run -n x true"})
    EXPECT_EQ(run(std::string(words) + " 2>&1").status, 2) << words;
  setenv("ROPEWALK_TIMEOUT", "soon", 1);
  EXPECT_EQ(run("env 2>&1").status, 2);
  unsetenv("ROPEWALK_TIMEOUT");
}

// What could not be written was lost, with exit status 0.
TEST(Command, OutputThatCannotBeWrittenIsAFailure) {
  for (const char* words :
       {"env", "doctor", "explain all_reduce --bytes 1M", "simulate all_reduce --bytes 8",
        "verify --ranks 1:3", "--help", "bench --help", "--version"}) {
    for (const char* target : {"/dev/full", "&-"}) {
      const Outcome outcome = run(std::string(words) + " 2>&1 >" + target);
      EXPECT_EQ(outcome.status, 74) << words << " >" << target;
      EXPECT_THAT(outcome.out, HasSubstr("standard output cannot be written")) << words;
    }
  }
}

// It filled memory until the kernel killed.
TEST(Command, BenchRefusesSizesThatDoNotFitIntoMemory) {
  const std::string rank = "run -n 2 -- " + program;
  const std::vector<std::string> benchmarks = {"bench all_reduce -n 2",
                                               "bench all_gather -n 2 --buffers plain", "bench put",
                                               rank + " bench all_reduce", rank + " bench put"};
  for (const std::string& words : benchmarks) {
    const Outcome outcome = run(words + " --sizes 8,16T 2>&1");
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_THAT(outcome.out, HasSubstr("--sizes 16 TiB needs")) << words;
    EXPECT_THAT(outcome.out, HasSubstr("GiB is available")) << words;
    EXPECT_THAT(outcome.out, testing::Not(HasSubstr("algbw"))) << words << ": measured before";
  }
}

TEST(Command, SizesTakeEveryUsualUnit) {
  const Outcome outcome = run("bench all_reduce --sizes 1KB,1.5KiB,2k --iterations 1 --json");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\"bytes\":1024,"), HasSubstr("\"bytes\":1536,"),
                                 HasSubstr("\"bytes\":2048,")));
  EXPECT_THAT(run("explain all_reduce --bytes 1.5MB --json").out, HasSubstr("\"bytes\":1572864,"));
}

TEST(Command, RdmaIsVerbs) {
  const Outcome outcome = run("explain all_reduce --bytes 1M --transport rdma --assume --json");
  EXPECT_THAT(outcome.out, HasSubstr("verbs between all ranks"));
  setenv("ROPEWALK_TRANSPORT", "rdma", 1);
  EXPECT_EQ(run("explain all_reduce --bytes 1M --assume --json").out, outcome.out);
  unsetenv("ROPEWALK_TRANSPORT");
}

TEST(Command, UnknownWordsGetASuggestion) {
  const Outcome outcome = run("bensh 2>&1");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr("did you mean \"bench\"?"));
  EXPECT_THAT(run("bench all_redcue 2>&1").out, HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(run("bench pignpong 2>&1").out, HasSubstr("did you mean pingpong?"));
}

TEST(Command, BenchPrintsNothingButJson) {
  const Outcome outcome =
      run("bench all_reduce -n 2 --transport shm --sizes 8,64K --iterations 20 --json");
  EXPECT_EQ(outcome.status, 0);
  std::istringstream lines(outcome.out);
  std::vector<size_t> bytes;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    bytes.push_back(json["bytes"]);
    EXPECT_EQ(json["ranks"], 2);
    EXPECT_EQ(json["iterations"], 20);
    EXPECT_EQ(json["transport"], "shm");
    EXPECT_EQ(json["wrong"], 0);
    EXPECT_LE(json["min_us"], json["median_us"]);
  }
  EXPECT_THAT(bytes, testing::ElementsAre(8, 65536));
}

TEST(Command, BenchChecksEveryCollective) {
  for (const char* collective :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter",
        "all_to_all", "barrier", "send_recv"}) {
    for (const char* buffers : {"registered", "plain"}) {
      const Outcome outcome = run(std::string("bench ") + collective +
                                  " -n 3 --sizes 4,1000 --iterations 3 --buffers " + buffers);
      EXPECT_EQ(outcome.status, 0) << collective << " " << buffers << "\n" << outcome.out;
    }
  }
}

TEST(Command, BenchJoinsTheJobItRunsIn) {
  const Outcome outcome =
      run("run -n 2 -- " + program + " bench all_reduce --sizes 1K --iterations 3 --json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("[0] {"));
}

TEST(Command, AJobOfFourReducesWithALimitOf64OpenFiles) {
  for (const char* transport : {"shm", "tcp"}) {
    const Outcome outcome = run("--version >/dev/null; ulimit -n 64; " + program +
                                " bench all_reduce -n 4 --sizes 1K,4M --iterations 3 --transport " +
                                transport + " 2>&1");
    EXPECT_EQ(outcome.status, 0) << transport << "\n" << outcome.out;
  }
}

TEST(Command, BenchMeasuresTheLinkBetweenTwoRanks) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* benchmark : {"put", "put --both", "pingpong", "signal"}) {
      const bool signal = std::string(benchmark) == "signal";
      const Outcome outcome = run(std::string("bench ") + benchmark + " --transport " + transport +
                                  " --iterations 50 --json" + (signal ? "" : " --sizes 1,70000"));
      EXPECT_EQ(outcome.status, 0) << benchmark << " " << transport;
      std::istringstream lines(outcome.out);
      std::vector<size_t> bytes;
      for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line);
        bytes.push_back(json["bytes"]);
        EXPECT_EQ(json["transport"], transport);
        EXPECT_EQ(json["iterations"], 50);
        EXPECT_EQ(json["wrong"], 0) << line;
        EXPECT_LE(json["min_us"], json["median_us"]);
      }
      EXPECT_EQ(bytes, signal ? std::vector<size_t>{0} : (std::vector<size_t>{1, 70000}));
    }
  }
}

TEST(Command, BenchOfALinkJoinsTheJobItRunsInAndLeavesOtherRanksAlone) {
  const Outcome outcome =
      run("run -n 3 -- " + program + " bench put --sizes 1K --iterations 3 --json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_THAT(run("run -n 1 -- " + program + " bench put 2>&1").out, HasSubstr("needs two ranks"));
}

TEST(Command, BenchOfALinkRefusesWhatMakesNoSense) {
  EXPECT_THAT(run("bench put --sizes 8:4 2>&1").out, HasSubstr("ends before it begins"));
  EXPECT_THAT(run("bench --dtype int8 put 2>&1").out, HasSubstr("put excludes --dtype"));
  EXPECT_THAT(run("bench put --hosts localhost 2>&1").out, HasSubstr("is one rank"));
  EXPECT_THAT(run("bench put --timeout soon 2>&1").out, HasSubstr("is not a duration"));
  EXPECT_THAT(run("bench signal --transport pigeon 2>&1").out, HasSubstr("choose one of auto"));
  EXPECT_THAT(run("bench put -n 3 2>&1").out, HasSubstr("3 not in {2}"));
}

nlohmann::json explained(const std::string& arguments) {
  const Outcome outcome = run("explain " + arguments + " --json");
  EXPECT_EQ(outcome.status, 0) << arguments;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

std::vector<std::string> protocols(const nlohmann::json& explanation) {
  std::vector<std::string> protocols;
  for (const auto& entry : explanation["channel"]) protocols.push_back(entry["protocol"]);
  return protocols;
}

TEST(Command, ExplainForetellsWhatBenchRuns) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* bytes : {"8", "256K", "4M"}) {
      const std::string common = std::string("-n 3 --transport ") + transport;
      const auto told = explained("all_reduce --bytes " + std::string(bytes) + " " + common);
      const Outcome ran = run("bench all_reduce --iterations 1 --json --sizes " +
                              std::string(bytes) + " " + common);
      EXPECT_EQ(told["algorithm"], nlohmann::json::parse(ran.out)["algorithm"]) << ran.out;
      EXPECT_EQ(told["bytes"], nlohmann::json::parse(ran.out)["bytes"]);
    }
  }
}

TEST(Command, ExplainTellsTheChannelAndWhatWasPassedOver) {
  const std::string direct = "all_reduce --bytes 1M -n 8 --algorithm direct";
  using testing::Contains;
  EXPECT_THAT(protocols(explained(direct)),
              AllOf(Contains("read_by_owner"), Contains("written_by_owner")));
  EXPECT_THAT(protocols(explained(direct + " --buffers plain")), Contains("through_window"));
  EXPECT_THAT(protocols(explained(direct + " --transport tcp")), Contains("staged"));
  EXPECT_THAT(protocols(explained("all_reduce --bytes 64 -n 8")), testing::Each("eager"));
  const auto forced = explained("all_reduce --bytes 1M -n 8 --algorithm ring");
  EXPECT_EQ(forced["algorithm"], "ring");
  EXPECT_THAT(forced["why"].get<std::string>(), HasSubstr("forced"));
  EXPECT_EQ(forced["passed_over"].size(), 9U);
  EXPECT_THAT(run("explain all_reduce --bytes 1M -n 16 --hosts 2").out,
              AllOf(HasSubstr("shm within hosts, tcp between them"), HasSubstr("passed over"),
                    HasSubstr("predicted")));
  EXPECT_THAT(run("explain all_reduce --bytes 1M -n 1").out, HasSubstr("moves nothing"));
  setenv("ROPEWALK_ALGORITHM", "tree", 1);
  EXPECT_THAT(run("explain all_reduce --bytes 1M").out, HasSubstr("forced by ROPEWALK_ALGORITHM"));
  unsetenv("ROPEWALK_ALGORITHM");
}

// It priced links as this host's adapters, whatever was described.
TEST(Command, ExplainPricesLinksAsTheyAreDescribed) {
  const Outcome described =
      run("explain broadcast --bytes 256K --network flat:hosts=8:rate=200mbit:latency=30us");
  EXPECT_THAT(described.out, AllOf(HasSubstr("between hosts: 30 us, then 25 MB/s"),
                                   HasSubstr("(described)"), HasSubstr("algorithm  ring")));
  EXPECT_THAT(run("explain all_reduce --bytes 8M --network racks:2x4:uplink=16").out,
              HasSubstr("algorithm  synthesized"));
}

// It planned for an adapter that is not there, as if it were.
TEST(Command, ExplainRefusesATransportThatIsNotThere) {
  setenv("ROPEWALK_IB_HCA", "=none", 1);  // where there are adapters, none may be used
  const std::string verbs = "explain all_reduce --bytes 1M -n 4 --transport verbs";
  const Outcome refused = run(verbs + " 2>&1"), planned = run(verbs + " --assume");
  const auto json = nlohmann::json::parse(run(verbs + " --assume --json").out);
  unsetenv("ROPEWALK_IB_HCA");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.out, AllOf(HasSubstr("verbs was asked for, but"), HasSubstr("--assume")));
  EXPECT_EQ(planned.status, 0);
  EXPECT_THAT(planned.out, HasSubstr("assumed    verbs could be used. It cannot: "));
  EXPECT_FALSE(json["assumed_though"].get<std::string>().empty());
}

TEST(Command, ExplainOfABarrierNeedsNoBytes) {
  const Outcome outcome = run("explain barrier -n 4");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("barrier: 4 ranks on 1 host"));
}

TEST(Command, ExplainRefusesWhatTheLibraryWould) {
  const auto refusal = [](const std::string& arguments) {
    const Outcome outcome = run("explain " + arguments + " 2>&1");
    EXPECT_NE(outcome.status, 0) << arguments;
    return outcome.out;
  };
  EXPECT_THAT(refusal("all_redcue --bytes 1"), HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(refusal("send_recv --bytes 1"), HasSubstr("choose one of all_reduce"));
  EXPECT_THAT(refusal("all_reduce"), HasSubstr("of how many bytes?"));
  EXPECT_THAT(refusal("all_reduce --bytes many"), HasSubstr("is not a size"));
  EXPECT_THAT(refusal("all_reduce --bytes 1M -n 2 --hosts 3"), HasSubstr("3 hosts for 2 ranks"));
  EXPECT_THAT(refusal("all_reduce --bytes 1M --hosts 2 --transport shm"),
              HasSubstr("several hosts"));
  EXPECT_THAT(refusal("all_gather --bytes 1M --algorithm tree"), HasSubstr("use auto, "));
  EXPECT_THAT(refusal("all_reduce --bytes 1M --op scaled_sum --dtype int8"),
              HasSubstr("not defined"));
  EXPECT_THAT(refusal("all_reduce --bytes 1M --rank 2"), HasSubstr("choose 0 to 1"));
}

TEST(Command, VerifyPrintsALinePerCollectiveAndAlgorithm) {
  const Outcome outcome = run("verify --ranks 1:4");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("all_reduce"), HasSubstr("halving_doubling"), HasSubstr("1:4")));
  EXPECT_NE(run("verify --ranks 4:1 2>&1").status, 0);
}

TEST(Command, EnvShowsValuesButNotTheKeyAndFlagsTypingErrors) {
  setenv("ROPEWALK_TIMEOUT", "7", 1);
  setenv("ROPEWALK_JOB_KEY", "hidden-secret", 1);
  setenv("ROPEWALK_TIMOUT", "8", 1);
  const Outcome outcome = run("env");
  for (const char* name : {"ROPEWALK_TIMEOUT", "ROPEWALK_JOB_KEY", "ROPEWALK_TIMOUT"})
    unsetenv(name);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\"7\""), HasSubstr("launcher:"),
                                 HasSubstr("did you mean ROPEWALK_TIMEOUT?"),
                                 testing::Not(HasSubstr("hidden-secret"))));
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// In which mappings of a process `text` stands, as often as it does: their flags.
std::vector<std::string> mappings_with(const std::string& text, pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream memory(folder + "/mem"), mappings(folder + "/smaps");
  std::vector<std::string> found;
  size_t begin = 0, end = 0;
  for (std::string line; std::getline(mappings, line);) {
    size_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &from, &to) == 2) begin = from, end = to;
    if (!line.starts_with("VmFlags:") || line.find(" rd") == line.npos) continue;
    if (end - begin > size_t{1} << 30) continue;  // of sanitizers
    std::string bytes(end - begin, 0);
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(begin));
    memory.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(memory.gcount()));
    for (size_t at = 0; (at = bytes.find(text, at)) != bytes.npos; ++at) found.push_back(line);
  }
  return found;
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// The key was in /proc/PID/environ, and in six places of a core file.
TEST(Command, ARankHasOneCopyOfTheKeyWhichIsNotDumped) {
  if (ropewalk::kIsSanitized) GTEST_SKIP() << "their runtime has a copy of the environment";
  const std::string key = "Key0" + std::to_string(getpid()) + "0123456789abcdefghij";
  const std::string coordinator = "127.0.0.1:" + std::to_string(free_port());
  std::vector<pid_t> ranks;
  for (const char* rank : {"0", "1"}) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setenv("ROPEWALK_RANK", rank, 1);
      setenv("ROPEWALK_SIZE", "2", 1);
      setenv("ROPEWALK_COORDINATOR", coordinator.c_str(), 1);
      setenv("ROPEWALK_JOB_KEY", key.c_str(), 1);
      execl(program.c_str(), program.c_str(), "bench", "all_reduce", "--sizes", "64M",
            "--iterations", "100000", nullptr);
      _exit(127);
    }
    ranks.push_back(pid);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // A large mapping is the buffer, which each rank has only once it has joined.
  const auto has_joined = [&](pid_t pid) {
    return contents_of("/proc/" + std::to_string(pid) + "/maps").find("/memfd:ropewalk") !=
           std::string::npos;
  };
  while (!std::ranges::all_of(ranks, has_joined) && std::chrono::steady_clock::now() < end)
    usleep(10'000);
  for (const pid_t pid : ranks) {
    EXPECT_TRUE(has_joined(pid));
    EXPECT_EQ(contents_of("/proc/" + std::to_string(pid) + "/environ").find(key),
              std::string::npos);
    const std::vector<std::string> flags = mappings_with(key, pid);
    EXPECT_THAT(flags, testing::ElementsAre(HasSubstr(" dd")));  // one, and no dump
  }
  for (const pid_t pid : ranks) kill(pid, SIGKILL);
  for (const pid_t pid : ranks) waitpid(pid, nullptr, 0);
}

TEST(Command, DoctorNamesEachFindingAndAFixForEachFault) {
  const Outcome well = run("doctor");
  for (const char* name : {"memlock", "nofile", "memfd", "peer memory", "cpus", "interface"}) {
    EXPECT_THAT(well.out, HasSubstr(name));
  }
  const Outcome outcome = run("doctor --coordinator 127.0.0.1:1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("FAIL coordinator: 127.0.0.1:1"), HasSubstr("advice: ")));
  EXPECT_THAT(run("doctor --coordinator localhost:99999 2>&1").out,
              AllOf(HasSubstr("port from 1 to 65535"), testing::Not(HasSubstr("memlock"))));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  program = argv[1];
  return RUN_ALL_TESTS();
}
