#include "bootstrap/auth.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

namespace ropewalk::bootstrap {
namespace {

class Auth : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_cryptography(); }
  Auth() : dialer_(random_key_pair()), acceptor_(random_key_pair()) {
    hello_.from = 1;
    hello_.public_key = dialer_.public_key;
    reply_.public_key = acceptor_.public_key;
  }
  HandshakeSecrets of_dialer() const {
    return *HandshakeSecrets::derive(key_, hello_, reply_, dialer_.secret_key, reply_.public_key);
  }
  HandshakeSecrets of_acceptor(const Key& key, const Hello& hello, const Reply& reply) const {
    return *HandshakeSecrets::derive(key, hello, reply, acceptor_.secret_key, hello.public_key);
  }

  const Key key_ = job_key("secret");
  const KeyPair dialer_, acceptor_;
  Hello hello_;
  Reply reply_;
};

TEST_F(Auth, BothSidesWithTheKeyAgree) {
  const HandshakeSecrets dialer = of_dialer(), acceptor = of_acceptor(key_, hello_, reply_);
  EXPECT_TRUE(acceptor.matches(dialer.proof()));
  EXPECT_TRUE(dialer.is_authentic(acceptor.answer(HandshakeResult::yield)));
  EXPECT_EQ(dialer.dialers_keys().send, acceptor.acceptors_keys().receive);
  EXPECT_EQ(dialer.dialers_keys().receive, acceptor.acceptors_keys().send);
  EXPECT_NE(dialer.dialers_keys().send, dialer.dialers_keys().receive);
}

TEST_F(Auth, AnotherKeyFailsOnEitherSide) {
  const HandshakeSecrets other = of_acceptor(job_key("secret2"), hello_, reply_);
  EXPECT_FALSE(other.matches(of_dialer().proof()));
  EXPECT_FALSE(of_dialer().is_authentic(other.answer(HandshakeResult::accepted)));
  EXPECT_NE(other.acceptors_keys().send, of_dialer().dialers_keys().receive);
}

TEST_F(Auth, NothingCanBeReflectedOrChanged) {
  const HandshakeSecrets dialer = of_dialer();
  Answer reflected{HandshakeResult::accepted, dialer.proof()};
  EXPECT_FALSE(dialer.is_authentic(reflected));
  Answer changed = of_acceptor(key_, hello_, reply_).answer(HandshakeResult::yield);
  changed.result = HandshakeResult::accepted;
  EXPECT_FALSE(dialer.is_authentic(changed));
}

TEST_F(Auth, NothingCanBeReplayed) {
  Reply second = reply_;
  second.public_key = random_key_pair().public_key;
  const Mac proof = of_dialer().proof();
  EXPECT_FALSE(of_acceptor(key_, hello_, second).matches(proof));
  Hello again = hello_;
  again.public_key = random_key_pair().public_key;
  EXPECT_FALSE(of_acceptor(key_, again, reply_).matches(proof));
}

/// Who has both messages and the job's key, but the secret key of neither, can derive nothing.
TEST_F(Auth, TheJobsKeyAloneOpensNothing) {
  const KeyPair own = random_key_pair();
  const auto spied =
      HandshakeSecrets::derive(key_, hello_, reply_, own.secret_key, reply_.public_key);
  EXPECT_NE(spied->dialers_keys().send, of_dialer().dialers_keys().send);
}

TEST_F(Auth, PairsDrawnAheadAreGivenOutOnce) {
  draw_key_pairs_ahead(3);
  std::set<PublicKey> publics;
  for (int i = 0; i < 5; ++i) {
    const KeyPair pair = random_key_pair();
    EXPECT_TRUE(publics.insert(pair.public_key).second) << i;
    Hello hello = hello_;
    hello.public_key = pair.public_key;
    const auto dialer =
        HandshakeSecrets::derive(key_, hello, reply_, pair.secret_key, reply_.public_key);
    EXPECT_TRUE(of_acceptor(key_, hello, reply_).matches(dialer->proof())) << i;
  }
}

TEST_F(Auth, AForkedChildHasNoneOfItsParentsPairs) {
  draw_key_pairs_ahead(2);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const PublicKey drawn = random_key_pair().public_key;
    _exit(write(pipe_ends[1], drawn.data(), drawn.size()) == ssize_t{sizeof(drawn)} ? 0 : 1);
  }
  PublicKey childs;
  ASSERT_EQ(read(pipe_ends[0], childs.data(), childs.size()), ssize_t{sizeof(childs)});
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  for (int i = 0; i < 3; ++i) EXPECT_NE(random_key_pair().public_key, childs) << i;
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(Auth, AKeyThatLeadsToNoSecretIsRefused) {
  EXPECT_FALSE(HandshakeSecrets::derive(key_, hello_, reply_, dialer_.secret_key, PublicKey{}));
}

TEST_F(Auth, EveryFieldIsBound) {
  const Mac proof = of_dialer().proof();
  const auto expect_refused = [&](const Hello& hello, const Reply& reply) {
    EXPECT_FALSE(of_acceptor(key_, hello, reply).matches(proof));
  };
  Hello changed = hello_;
  changed.purpose = Purpose::tree;
  expect_refused(changed, reply_);
  changed = hello_;
  changed.from = 2;
  expect_refused(changed, reply_);
  changed = hello_;
  changed.to = 2;
  expect_refused(changed, reply_);
  changed = hello_;
  changed.stream = 2;
  expect_refused(changed, reply_);
  changed = hello_;
  changed.version = kProtocolVersion + 1;
  expect_refused(changed, reply_);
  Reply version = reply_;
  version.version = kProtocolVersion + 1;
  expect_refused(hello_, version);
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
