// Jobs of several nodes, each with a launcher of its own.
#include <gmock/gmock.h>

#include <map>

#include "ropewalk/status.h"
#include "tools/launcher/launcher_fixture.h"
#include "tools/launcher/nodes.h"

namespace ropewalk::tools {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

using Table = std::map<std::string, std::string>;

Node node_in(const Table& table, const NodeFlags& flags) {
  return node_of(flags, [&table](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

std::string complaint(const Table& table, const NodeFlags& flags) {
  try {
    const Node node = node_in(table, flags);
    return "no error: " + node.coordinator;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
}

TEST(Node, IsTheOnlyOneWhereNothingIsSaid) {
  const Node node = node_in({{"JOB_COMPLETION_INDEX", "3"}, {"PET_NNODES", "4"}}, {});
  EXPECT_EQ(node.count, 1);
  EXPECT_EQ(node.rank, 0);
  EXPECT_EQ(node_in({}, {.nnodes = "1"}).coordinator, "");
}

TEST(Node, FlagsCountBeforeVariables) {
  const Node node = node_in({{"JOB_COMPLETION_INDEX", "3"}, {"ROPEWALK_COORDINATOR", "b:2"}},
                            {.nnodes = "8", .node_rank = "5", .coordinator = "a:1"});
  EXPECT_EQ(node.count, 8);
  EXPECT_EQ(node.rank, 5);
  EXPECT_EQ(node.coordinator, "a:1");
}

TEST(Node, IsAPodOfKubernetes) {
  Table table = {{"JOB_COMPLETION_INDEX", "3"}, {"HOSTNAME", "train-3.train.ml.svc.cluster.local"}};
  EXPECT_EQ(node_in(table, {.nnodes = "4"}).rank, 3);
  EXPECT_EQ(node_in(table, {.nnodes = "4"}).coordinator,
            "train-0.train.ml.svc.cluster.local:20000");
  table["ROPEWALK_COORDINATOR"] = "a:1";
  EXPECT_EQ(node_in(table, {.nnodes = "4"}).coordinator, "a:1");
  table = {{"JOB_COMPLETION_INDEX", "3"}, {"HOSTNAME", "node7"}};
  EXPECT_THAT(complaint(table, {.nnodes = "4"}),
              AllOf(HasSubstr("HOSTNAME=\"node7\""), HasSubstr("set ROPEWALK_COORDINATOR")));
}

TEST(Node, IsToldByKubeflow) {
  const Table table = {{"PET_NODE_RANK", "1"},
                       {"PET_MASTER_ADDR", "job-node-0-0.job"},
                       {"PET_MASTER_PORT", "29400"}};
  EXPECT_EQ(node_in(table, {.nnodes = "2"}).rank, 1);
  EXPECT_EQ(node_in(table, {.nnodes = "2"}).coordinator, "job-node-0-0.job:29400");
}

TEST(Node, ThatCannotBeIsRefused) {
  for (const char* bad : {"0", "-1", "x", "", "99999999999"})
    EXPECT_THAT(complaint({}, {.nnodes = bad}), HasSubstr("--nnodes"));
  EXPECT_THAT(complaint({}, {.nnodes = "2", .node_rank = "2"}), HasSubstr("must be 0 to 1"));
  EXPECT_THAT(complaint({}, {.nnodes = "2"}), HasSubstr("write --node-rank, 0 to 1"));
  EXPECT_THAT(complaint({}, {.node_rank = "0"}), HasSubstr("--node-rank without --nnodes"));
  EXPECT_THAT(complaint({}, {.coordinator = "a:1"}), HasSubstr("--coordinator without --nnodes"));
  EXPECT_THAT(complaint({}, {.nnodes = "2", .node_rank = "0"}), HasSubstr("write --coordinator"));
  EXPECT_THAT(complaint({}, {.nnodes = "2", .node_rank = "0", .coordinator = "a"}),
              HasSubstr("\"a\" is not host:port"));
  EXPECT_THAT(complaint({{"JOB_COMPLETION_INDEX", "2"}}, {.nnodes = "2"}),
              HasSubstr("JOB_COMPLETION_INDEX=2 is out of range for --nnodes 2"));
  EXPECT_THAT(complaint({{"JOB_COMPLETION_INDEX", "1"}, {"PET_NODE_RANK", "0"}}, {.nnodes = "2"}),
              HasSubstr("JOB_COMPLETION_INDEX=1, but PET_NODE_RANK=0"));
}

constexpr const char* kTellAll =
    "echo $ROPEWALK_RANK/$ROPEWALK_SIZE $ROPEWALK_LOCAL_RANK/$ROPEWALK_LOCAL_SIZE "
    "$ROPEWALK_COORDINATOR ${ROPEWALK_COORDINATOR_FD-unset} ${ROPEWALK_JOB_KEY:-none} $(cat)";

TEST_F(LauncherTest, StartsTheRanksOfItsNode) {
  environment_ = {"ROPEWALK_JOB_KEY=common"};
  const std::vector<std::string> flags = {"--nnodes", "2", "--coordinator", "far:7",
                                          "-n",       "2", "--node-rank"};
  for (const std::string node : {"0", "1"}) {
    std::vector<std::string> all = flags;
    all.push_back(node);
    const Outcome outcome = run_script(all, kTellAll, "input");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string first = "[0] 0/4 0/2 far:7 unset common input\n";
    const std::string others[] = {"[1] 1/4 1/2 far:7 unset common\n",
                                  "[2] 2/4 0/2 far:7 unset common\n",
                                  "[3] 3/4 1/2 far:7 unset common\n"};
    if (node == "0")
      EXPECT_THAT(outcome.out, AnyOf(first + others[0], others[0] + first));
    else
      EXPECT_THAT(outcome.out, AnyOf(others[1] + others[2], others[2] + others[1]));
  }
}

TEST_F(LauncherTest, ANodeWhoseRankFailsFails) {
  environment_ = {"ROPEWALK_JOB_KEY=common"};
  const Outcome outcome =
      run_script({"--nnodes", "2", "--node-rank", "1", "--coordinator", "far:7", "-n", "2"},
                 "[ $ROPEWALK_RANK = 2 ] || exit 7");
  EXPECT_EQ(outcome.status, 7);
  EXPECT_THAT(outcome.err, HasSubstr("rank 3"));
}

TEST_F(LauncherTest, NodesWithoutACommonKeyAreRefusedUnlessTheJobIsOpen) {
  const std::vector<std::string> flags = {"--nnodes",      "2",     "--node-rank", "1",
                                          "--coordinator", "far:7", "-n",          "1"};
  const Outcome refused = run_script(flags, kTellAll);
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, AllOf(HasSubstr("export ROPEWALK_JOB_KEY="),
                                 HasSubstr("kubectl create secret generic")));
  environment_ = {"ROPEWALK_OPEN=1"};
  EXPECT_EQ(run_script(flags, kTellAll).out, "[1] 1/2 0/1 far:7 unset none\n");
}

TEST_F(LauncherTest, NodesAreNotHosts) {
  environment_ = {"ROPEWALK_JOB_KEY=common"};
  const std::vector<std::string> flags = {"--nnodes", "40000",         "--node-rank",
                                          "1",        "--coordinator", "far:7"};
  std::vector<std::string> hosts = flags, many = flags;
  hosts.insert(hosts.end(), {"--hosts", "a:1"});
  many.insert(many.end(), {"-n", "2"});
  EXPECT_THAT(run_script(hosts, ":").err, HasSubstr("--hosts \"a:1\""));
  EXPECT_THAT(run_script(many, ":").err, HasSubstr("more than 65536 ranks"));
}

}  // namespace
}  // namespace ropewalk::tools
