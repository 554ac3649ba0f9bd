// Launchers that answer as they should, and such as do not; the real ones are in tests/launchers.
#include "bootstrap/pmi.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

const std::vector<std::string> kGreeting = {
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64\n", "cmd=my_kvsname kvsname=kvs_7_0\n"};

/// Gives one answer, in two parts, to each line, or PMI-2 request, that it hears, and then none; or
/// closes.
class FakeLauncher {
 public:
  explicit FakeLauncher(std::vector<std::string> answers, bool closes = false)
      : answers_(std::move(answers)) {
    std::array<int, 2> ends;
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    own_.reset(ends[0]);
    rank_.reset(ends[1]);
    thread_ = std::thread([this, closes] {
      run();
      if (closes) ::shutdown(own_.get(), SHUT_RDWR);
    });
  }
  ~FakeLauncher() {
    ::shutdown(rank_.get(), SHUT_RDWR);
    thread_.join();
  }

  int fd() const { return rank_.get(); }
  /// Once the rank has gone.
  const std::string& heard() {
    ::shutdown(rank_.get(), SHUT_RDWR);
    thread_.join();
    thread_ = std::thread([] {});
    return heard_;
  }

 private:
  void run() {
    size_t answered = 0;
    char byte = 0;
    while (::recv(own_.get(), &byte, 1, 0) == 1) {
      heard_ += byte;
      if (byte != '\n' && !is_pmi2_request()) continue;
      if (answered == answers_.size()) return;
      const std::string& answer = answers_[answered++];
      const size_t half = answer.size() / 2;
      ::send(own_.get(), answer.data(), half, MSG_NOSIGNAL);
      std::this_thread::sleep_for(1ms);
      ::send(own_.get(), answer.data() + half, answer.size() - half, MSG_NOSIGNAL);
    }
  }

  /// Whether what was heard since the first line ends with a whole one.
  bool is_pmi2_request() const {
    size_t at = heard_.find('\n');
    if (heard_.find("pmi_version=2") > at || at == std::string::npos) return false;
    for (++at; at + 6 <= heard_.size(); at += 6 + std::stoul(heard_.substr(at, 6)))
      if (at + 6 + std::stoul(heard_.substr(at, 6)) == heard_.size()) return true;
    return false;
  }

  std::vector<std::string> answers_;
  UniqueFd own_, rank_;
  std::string heard_;
  std::thread thread_;
};

std::vector<std::string> after_greeting(std::vector<std::string> answers) {
  answers.insert(answers.begin(), kGreeting.begin(), kGreeting.end());
  return answers;
}

/// Of a Pmi that asks for the value of a key.
void expect_complaint(const std::vector<std::string>& answers, const char* part,
                      ErrorCode code = ErrorCode::unavailable, bool closes = true) {
  FakeLauncher launcher(answers, closes);
  try {
    Pmi pmi(launcher.fd(), 1, {}, 200ms);
    ADD_FAILURE() << "no error that mentions " << part << ", but " << pmi.get("key");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("ROPEWALK_COORDINATOR"), std::string::npos);
  }
}

TEST(Pmi, PutsMeetsAndGets) {
  FakeLauncher launcher(
      after_greeting({"cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n",
                      "cmd=get_result rc=0 msg=success value=a,b:1\n", "cmd=finalize_ack\n"}));
  {
    Pmi pmi(launcher.fd(), 1, {}, 10s);
    pmi.put("key", "a,b:1");
    pmi.barrier();
    EXPECT_EQ(pmi.get("key"), "a,b:1");
  }
  EXPECT_EQ(launcher.heard(),
            "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_my_kvsname\n"
            "cmd=put kvsname=kvs_7_0 key=key value=a,b:1\ncmd=barrier_in\n"
            "cmd=get kvsname=kvs_7_0 key=key\ncmd=finalize\n");
}

const char* const kPmi2Greeting = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
/// As Slurm pads it.
std::string pmi2(const std::string& text) {
  const std::string length = std::to_string(text.size());
  return length + std::string(6 - length.size(), ' ') + text;
}

const std::string kPmi2Begun = pmi2("cmd=fullinit-response;rc=0;rank=1;size=4;");

TEST(Pmi, SpeaksPmi2) {
  FakeLauncher launcher({kPmi2Greeting, kPmi2Begun, pmi2("cmd=kvs-put-response;rc=0;"),
                         pmi2("cmd=kvs-fence-response;rc=0;"),
                         pmi2("cmd=kvs-get-response;rc=0;found=TRUE;value=a,b:1;"),
                         pmi2("cmd=finalize-response;rc=0;")});
  {
    Pmi pmi(launcher.fd(), 1, "2.0", 10s);
    pmi.put("key", "a,b:1");
    pmi.barrier();
    EXPECT_EQ(pmi.get("key"), "a,b:1");
  }
  EXPECT_EQ(launcher.heard(),
            "cmd=init pmi_version=2 pmi_subversion=0\n"
            "    51cmd=fullinit;pmijobid=2.0;pmirank=1;threaded=FALSE;"
            "    32cmd=kvs-put;key=key;value=a,b:1;"
            "    14cmd=kvs-fence;"
            "    39cmd=kvs-get;jobid=2.0;srcid=-1;key=key;"
            "    13cmd=finalize;");
}

TEST(Pmi, Pmi2AnswersThatMakeNoSenseAreTold) {
  const auto complaint_about = [](std::vector<std::string> answers) -> std::string {
    FakeLauncher launcher(std::move(answers), true);
    try {
      Pmi pmi(launcher.fd(), 1, "2.0", 200ms);
      return "no error, but " + pmi.get("key");
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto expect = [&](std::vector<std::string> answers, const char* part) {
    const std::string complaint = complaint_about(std::move(answers));
    EXPECT_NE(complaint.find(part), std::string::npos) << complaint;
  };
  expect({"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"}, "PMI 1");
  expect({kPmi2Greeting, "hello world"}, "no PMI-2");
  expect({kPmi2Greeting, "999999cmd"}, "has not answered");
  expect({kPmi2Greeting, pmi2("cmd=fullinit-response;rc=14;")}, "rc=14");
  expect({kPmi2Greeting, kPmi2Begun, pmi2("cmd=kvs-get-response;rc=0;found=FALSE;")},
         "does not have rank 0's key");
}

TEST(Pmi, AnswersThatMakeNoSenseAreTold) {
  expect_complaint({"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"}, "PMI 2");
  expect_complaint({"hello\n"}, "\"hello\"");
  expect_complaint({"\n"}, "cmd=init");
  expect_complaint({"cmd=response_to_init rc=-1\n"}, "rc=-1");
  expect_complaint({std::string(40'000, 'x')}, "no line");
  expect_complaint({}, "closed its socket");
  expect_complaint(after_greeting({"cmd=get_result rc=-1 msg=key_not_found\n"}), "key_not_found");
}

TEST(Pmi, ALauncherThatDoesNotAnswerIsATimeout) {
  expect_complaint(kGreeting, "within 0.2 s", ErrorCode::timeout, false);
}

TEST(Pmi, ADescriptorThatIsNoneIsTold) {
  try {
    Pmi pmi(1 << 20, 1, {}, 1s);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("PMI_FD=1048576"), std::string::npos) << error.what();
  }
}

TEST(Pmi, AValueThatIsTooLongIsNotSent) {
  FakeLauncher launcher(after_greeting({"cmd=finalize_ack\n"}));
  {
    Pmi pmi(launcher.fd(), 1, {}, 10s);
    EXPECT_THROW(pmi.put("key", std::string(64, 'x')), Error);
  }
  EXPECT_EQ(launcher.heard().find("cmd=put"), std::string::npos);
}

}  // namespace
}  // namespace ropewalk::bootstrap
