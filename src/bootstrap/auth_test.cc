#include "bootstrap/auth.h"

#include <gtest/gtest.h>

namespace ropewalk::bootstrap {
namespace {

class Auth : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_cryptography(); }
  Auth() {
    hello_.from = 1;
    hello_.nonce = random_nonce();
  }
  const Key key_ = job_key("secret");
  Hello hello_;
};

TEST_F(Auth, BothSidesWithTheKeyAgree) {
  const Challenge challenge = challenge_for(key_, hello_);
  EXPECT_TRUE(verify(key_, hello_, challenge));
  EXPECT_TRUE(verify(key_, hello_, challenge, proof_for(key_, hello_, challenge)));
}

TEST_F(Auth, AnotherKeyFailsOnEitherSide) {
  const Key other = job_key("secret2");
  const Challenge challenge = challenge_for(key_, hello_);
  EXPECT_FALSE(verify(other, hello_, challenge));
  EXPECT_FALSE(verify(key_, hello_, challenge, proof_for(other, hello_, challenge)));
}

TEST_F(Auth, NothingCanBeReflected) {
  const Challenge challenge = challenge_for(key_, hello_);
  EXPECT_FALSE(verify(key_, hello_, challenge, challenge.mac));
  Challenge reflected = challenge;
  reflected.mac = proof_for(key_, hello_, challenge);
  EXPECT_FALSE(verify(key_, hello_, reflected));
}

TEST_F(Auth, NothingCanBeReplayed) {
  const Challenge first = challenge_for(key_, hello_);
  const Challenge second = challenge_for(key_, hello_);
  EXPECT_FALSE(verify(key_, hello_, second, proof_for(key_, hello_, first)));
  Hello again = hello_;
  again.nonce = random_nonce();
  EXPECT_FALSE(verify(key_, again, first));
}

TEST_F(Auth, EveryFieldIsBound) {
  const Challenge challenge = challenge_for(key_, hello_);
  const Mac proof = proof_for(key_, hello_, challenge);
  const auto expect_refused = [&](const Hello& changed) {
    EXPECT_FALSE(verify(key_, changed, challenge));
    EXPECT_FALSE(verify(key_, changed, challenge, proof));
  };
  Hello changed = hello_;
  changed.purpose = Purpose::tree;
  expect_refused(changed);
  changed = hello_;
  changed.from = 2;
  expect_refused(changed);
  changed = hello_;
  changed.to = 2;
  expect_refused(changed);
  changed = hello_;
  changed.stream = 2;
  expect_refused(changed);
  changed = hello_;
  changed.version = kProtocolVersion + 1;
  expect_refused(changed);
  Challenge version = challenge;
  version.version = kProtocolVersion + 1;
  EXPECT_FALSE(verify(key_, hello_, version));
}

TEST_F(Auth, APartsSecretFollowsFromTheWholesAndANonce) {
  const std::string part = part_secret("secret", "nonce");
  EXPECT_EQ(part, part_secret("secret", "nonce"));
  EXPECT_EQ(part.size(), 64u);
  EXPECT_NE(part, part_secret("secret", "nonc"));
  EXPECT_NE(part, part_secret("secre", "nonce"));
  EXPECT_NE(job_key(part), job_key("nonce"));
}

TEST_F(Auth, EachWorldHasItsOwnKey) {
  EXPECT_NE(session_key(key_, random_world_id()), session_key(key_, random_world_id()));
  const WorldId world = random_world_id();
  EXPECT_EQ(session_key(key_, world), session_key(key_, world));
  EXPECT_NE(session_key(job_key("other"), world), session_key(key_, world));
}

}  // namespace
}  // namespace ropewalk::bootstrap
