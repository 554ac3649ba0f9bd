#include "bootstrap/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bootstrap/auth.h"
#include "bootstrap/world_testing.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk::bootstrap {
namespace {

void expect_refused(const auto& make, const std::string& mention) {
  try {
    make();
    ADD_FAILURE() << "was taken; expected: " << mention;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(mention), std::string::npos) << error.what();
  }
}

TEST(Secret, OneWith128RandomBitsIsStrong) {
  start_cryptography();
  EXPECT_TRUE(Secret(random_secret()).is_strong());
  for (const char* strong : {"0123456789abcdef0123456789ABCDEF", "mZ4n9Q2tq0WbJrC7yXv3Lw",
                             "mZ4n9Q2tq0WbJrC7yXv3Lw==", "a-B_9Q2tq0WbJrC7yXv3Lw",
                             "mZnQtqWbJrCyXvLwmZnQtq", "k3m9x0q2v7b1n5z8w4r6t0y2p"})
    EXPECT_TRUE(Secret(strong).is_strong()) << strong;
  for (const char* weak : {"", "hunter2", "0123456789abcdef0123456789abcde", "20241231235959123456",
                           "correcthorsebatterystaplecorrect", "Correct Horse Battery Staple 1"})
    EXPECT_FALSE(Secret(weak).is_strong()) << weak;
}

class SecretFile : public testing::Test {
 protected:
  ~SecretFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  const std::string path_ =
      std::filesystem::temp_directory_path() / fmt::format("ropewalk-key-{}", getpid());
};

TEST_F(SecretFile, HoldsTheKeyInItsFirstLine) {
  for (const char* text : {"the key", "the key\n", "the key\r\nand more\n"}) {
    write(text);
    EXPECT_EQ(read_secret(path_).text(), "the key");
  }
  if (geteuid() != 0) return;
  write("the key", 0640);  // a volume of Kubernetes is root's, and a group's to read
  EXPECT_EQ(read_secret(path_).text(), "the key");
}

TEST_F(SecretFile, IsRefusedWhereOthersMayReadIt) {
  for (const mode_t mode : {0660, 0604, 0620}) {
    write("the key", mode);
    expect_refused([this] { read_secret(path_); }, "chmod 600 " + path_);
  }
}

TEST_F(SecretFile, IsRefusedWhereItHoldsNoKey) {
  expect_refused([this] { read_secret(path_); }, "no such file");
  for (const std::string& text : {std::string(), std::string("\nkey"), std::string(5000, 'k')}) {
    write(text);
    expect_refused([this] { read_secret(path_); }, "1 to 4096 bytes");
  }
}

/// Each in a child: the process keeps what it has read.
class JobKeyOfAProcess : public SecretFile {
 protected:
  void in_a_child(const std::function<void()>& body) {
    EXPECT_EXIT(
        {
          body();
          exit(HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
  }
};

TEST_F(JobKeyOfAProcess, IsWipedFromTheEnvironmentAndKept) {
  in_a_child([] {
    setenv("ROPEWALK_JOB_KEY", "hunter2", 1);
    const char* bytes = getenv("ROPEWALK_JOB_KEY");
    EXPECT_EQ(config_from_environment().job_key.text(), "hunter2");
    for (int i = 0; i < 8; ++i) EXPECT_EQ(bytes[i], '\0');
    EXPECT_EQ(config_from_environment().job_key.text(), "hunter2");
    setenv("ROPEWALK_JOB_KEY", "another", 1);
    EXPECT_EQ(take_job_key().text(), "another");
    unsetenv("ROPEWALK_JOB_KEY");
    EXPECT_TRUE(take_job_key().empty());
  });
}

TEST_F(JobKeyOfAProcess, StaysWhereItIsWhenThatIsAsked) {
  in_a_child([] {
    setenv("ROPEWALK_JOB_KEY", "hunter2", 1);
    setenv("ROPEWALK_KEEP_JOB_KEY", "1", 1);
    EXPECT_EQ(take_job_key().text(), "hunter2");
    EXPECT_STREQ(getenv("ROPEWALK_JOB_KEY"), "hunter2");
  });
}

TEST_F(JobKeyOfAProcess, ComesFromAFileOrAPipeThatIsReadOnce) {
  write("of a file\n");
  in_a_child([this] {
    setenv("ROPEWALK_JOB_KEY_FILE", path_.c_str(), 1);
    EXPECT_EQ(take_job_key().text(), "of a file");
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], "of a pipe\n", 10), 10);  // and it stays open
    setenv("ROPEWALK_JOB_KEY_FILE", fmt::format("/dev/fd/{}", ends[0]).c_str(), 1);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(take_job_key().text(), "of a pipe");
    setenv("ROPEWALK_JOB_KEY", "hunter2", 1);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(take_job_key().text(), "hunter2");
  });
}

Options with_key(const char* key) {
  Options options;
  options.key = key;
  return options;
}

constexpr const char* kKey = "0123456789abcdef0123456789abcdef";

TEST(UniqueId, HoldsNothingSecretWhereTheRanksHaveAKey) {
  const char* const other = "0123456789abcdef0123456789abcdee";
  const Rendezvous rendezvous(with_key(kKey));
  const std::string& id = rendezvous.unique_id();
  const std::string key = *rendezvous.options(0, 2, with_key(kKey)).key;
  EXPECT_EQ(*Rendezvous::options(id, 1, 2, with_key(kKey)).key, key);
  EXPECT_EQ(id.find(key), std::string::npos);
  EXPECT_NE(*Rendezvous::options(id, 1, 2, with_key(other)).key, key);
  EXPECT_NE(*Rendezvous(with_key(kKey)).options(0, 2, with_key(kKey)).key, key);
  expect_refused([&] { Rendezvous::options(id, 1, 2, with_key("")); }, "this rank has none");
}

TEST(UniqueId, LeadsNowhereWithAKeyThatCanBeGuessed) {
  const std::string nonce(64, '0');
  const auto options = [&](const std::string& at) {
    return Rendezvous::options("ropewalk2 " + nonce + " " + at, 1, 2, with_key("hunter2"));
  };
  EXPECT_TRUE(options("127.0.0.1:80").key);
  for (const char* at : {"192.0.2.1:80", "127.0.0.1:80,192.0.2.1:80"})
    expect_refused([&] { options(at); }, "can be guessed");
}

/// Who can write to where ranks look for the unique id must not make them go without their key.
TEST(UniqueId, WithoutAKeyIsRefusedByARankThatHasOne) {
  const Rendezvous rendezvous(with_key(""));
  const std::string& id = rendezvous.unique_id();
  EXPECT_EQ(*Rendezvous::options(id, 1, 2, with_key("")).key, *rendezvous.options(0, 2).key);
  expect_refused([&] { Rendezvous::options(id, 1, 2, with_key(kKey)); }, "rank 0 has none");
}

// Once a job without a key was open to whoever reached it, which it said at the level `info`.
class Open : public testing::Test {
 protected:
  void expect_refused_to_join(const std::string& mention) {
    job_.config.timeout = std::chrono::milliseconds(200);
    try {
      World::join({0, 2, "192.0.2.1:" + free_port(), -1, "test"}, job_.config, {});
      ADD_FAILURE() << "joined";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(mention), std::string::npos) << error.what();
    }
  }
  static std::string free_port() {
    return std::to_string(local_address(listen_everywhere(0).get()).port());
  }
  TestJob job_{2};
};

TEST_F(Open, IsOnlyOnPurposeBeyondThisHost) {
  job_.config.job_key = {};
  expect_refused_to_join("export ROPEWALK_JOB_KEY=$(openssl rand -hex 32)");
  job_.config.open = true;
  expect_refused_to_join("rank 1 never came");
}

TEST_F(Open, IsWhatAKeyThatCanBeGuessedMakes) {
  job_.config.job_key = "hunter2";
  expect_refused_to_join("can be guessed");
  job_.config.job_key = random_secret();
  expect_refused_to_join("rank 1 never came");
}

TEST_F(Open, IsNotWhatIsSealed) {
  job_.config.job_key = {};
  job_.config.open = job_.config.secure = true;
  expect_refused_to_join("ROPEWALK_SECURE=1 and no job key");
  job_.config.job_key = random_secret();
  expect_refused_to_join("rank 1 never came");
}

TEST_F(Open, IsNotWhatIsOnLoopback) {
  job_.config.job_key = {};
  expect_no_errors(run_world_ranks(2, [&](int rank) { job_.join(rank)->leave(); }));
}

}  // namespace
}  // namespace ropewalk::bootstrap
