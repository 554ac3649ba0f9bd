// The command line of `ropewalk run`: what is ours, what the program's, and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tools/launcher/launcher_fixture.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class RunCommandTest : public LauncherTest {
 protected:
  /// Status 2 and nothing started; what standard error says.
  std::string refusal(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"echo", "started"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_LT(outcome.err.size(), 400U);
    return outcome.err;
  }
};

TEST_F(RunCommandTest, AnUnknownOptionIsNotTakenForTheProgram) {
  EXPECT_THAT(refusal({"-n", "2", "--timeot", "5"}),
              AllOf(HasSubstr("unknown option --timeot"), HasSubstr("did you mean --timeout?")));
  EXPECT_THAT(refusal({"-n", "2", "--host=a"}), HasSubstr("did you mean --hosts?"));
  EXPECT_THAT(refusal({"-bind", "-n", "2"}),
              HasSubstr("unknown option -bind; did you mean --bind?"));
  EXPECT_THAT(refusal({"-n", "2", "-q"}), AllOf(HasSubstr("option -q"), Not(HasSubstr("mean"))));
  EXPECT_THAT(refusal({"-n", "2", "--bind=yes"}), HasSubstr("--bind=yes"));
  EXPECT_EQ(run({"-n", "1", "echo", "--timeot", "-np", "7"}).out, "[0] --timeot -np 7\n");
}

TEST_F(RunCommandTest, NpOfMpirunIsTheNumberOfRanks) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"-np", "2"}, {"--np", "2"}, {"-np=2"}, {"--np=2"}, {"-n2"}, {"-n=2"}, {"--ranks=2"}}) {
    const Outcome outcome = run_script(flags, "[ $ROPEWALK_SIZE = 2 ] && exit 7");
    EXPECT_EQ(outcome.status, 7) << flags[0] << "\n" << outcome.err;
  }
}

TEST_F(RunCommandTest, BadTransportsAndTimesAreRefusedAsTheUserWroteThem) {
  EXPECT_THAT(refusal({"-n", "2", "--transport", "pigeon"}),
              AllOf(HasSubstr("--transport \"pigeon\""), HasSubstr("shm"),
                    Not(HasSubstr("ROPEWALK_TRANSPORT"))));
  EXPECT_THAT(refusal({"-n", "2", "--timeout", "5 weeks"}),
              AllOf(HasSubstr("--timeout \"5 weeks\""), HasSubstr("200ms"),
                    Not(HasSubstr("ROPEWALK_TIMEOUT"))));
  EXPECT_THAT(refusal({"-n", "2", "-x", "ROPEWALK_TIMEOUT=soon"}),
              HasSubstr("-x \"ROPEWALK_TIMEOUT=soon\""));
  EXPECT_THAT(refusal({"-n", "2", "--grace", "x"}), HasSubstr("--grace \"x\""));
  EXPECT_THAT(refusal({"-n", "2", "--time-limit", "-1"}), HasSubstr("--time-limit \"-1\""));
  EXPECT_THAT(refusal({"-n", "2", "--time-limit", "0"}), HasSubstr("above 0"));
  for (const char* time : {"2", "25h", "soon"})
    EXPECT_THAT(refusal({"--hosts", "a", "--host-timeout", time}), HasSubstr("--host-timeout \""));
  for (const char* flag : {"--transport=", "--timeout=", "--workdir="}) {
    EXPECT_THAT(refusal({"-n", "2", flag}), HasSubstr("it is empty"));
  }
}

TEST_F(RunCommandTest, BadNumbersOfRanksHostsAndVariablesAreRefused) {
  for (const char* ranks : {"0", "x", "-2", "1.5", "99999999999", ""}) {
    EXPECT_THAT(refusal({"-n", ranks}), HasSubstr("must be 1 to 65536"));
  }
  EXPECT_THAT(refusal({"-n", "2", "--hosts", "bad:"}), HasSubstr("\"bad:\""));
  EXPECT_THAT(refusal({"-n", "2", "--hosts", ""}), HasSubstr("--hosts"));
  EXPECT_THAT(refusal({"-n", "2", "-x", ""}), HasSubstr("names no variable"));
  EXPECT_THAT(refusal({"-n", "2", "-x", "=v"}), HasSubstr("names no variable"));
  EXPECT_THAT(refusal({"-n", "2", "-x", "NOT_SET"}), HasSubstr("-x NOT_SET=value"));
  EXPECT_THAT(refusal({"-n", "2", "-x", "ROPEWALK_RANK=1"}), HasSubstr("of its own"));
  EXPECT_THAT(refusal({}), HasSubstr("-n 4"));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-n", "2"}, {"-n", "2", "--"}, {"-n", "2", ""}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("no program given"));
  }
}

TEST_F(RunCommandTest, BadSizesOfAnElasticJobAreRefused) {
  for (const char* range : {"", "2", "0:2", "3:2", "2:x", "2:4:6", "1:99999"})
    EXPECT_THAT(refusal({"-n", "2", "--elastic", range}),
                AllOf(HasSubstr(fmt::format("--elastic \"{}\"", range)), HasSubstr("MIN:MAX")));
  EXPECT_THAT(refusal({"-n", "2", "--elastic", "3:4"}), HasSubstr("would start with 2 ranks"));
  EXPECT_THAT(refusal({"-n", "5", "--elastic", "3:4"}), HasSubstr("would start with 5 ranks"));
  EXPECT_THAT(refusal({"--hosts", "a:2", "--elastic", "3:4"}), HasSubstr("start with 2 ranks"));
  EXPECT_THAT(refusal({"-n", "2", "--restart", "4"}), HasSubstr("--elastic"));
  for (const char* restarts : {"", "-1", "x"})
    EXPECT_THAT(refusal({"--elastic", "1:2", "--restart", restarts}), HasSubstr("--restart \""));
  EXPECT_THAT(refusal({"-n", "2", "--elastic", "1:4", "--nnodes", "2"}), HasSubstr("--nnodes"));
}

TEST_F(RunCommandTest, HelpNamesEveryExitStatus) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* status : {"126", "127", "124", "255", "74", "141"}) {
    EXPECT_THAT(outcome.out, HasSubstr(status));
  }
}

}  // namespace
}  // namespace ropewalk::tools
