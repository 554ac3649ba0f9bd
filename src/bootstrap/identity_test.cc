#include <gtest/gtest.h>

#include <map>

#include "bootstrap/world.h"

namespace ropewalk {
namespace {

using Table = std::map<std::string, std::string>;

Identity find(const Table& table, const Options& options = {}, const Knobs& knobs = {}) {
  return find_identity(options, knobs, [&table](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

std::string complaint(const Table& table, const Options& options = {}, const Knobs& knobs = {}) {
  try {
    const Identity identity = find(table, options, knobs);
    return "no error: " + identity.source;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
}

void expect_mention(const std::string& text, const char* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

Table slurm_table() {
  return {{"SLURM_PROCID", "2"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_STEP_NODELIST", "node[03-04]"},
          {"SLURM_JOB_ID", "12345"},
          {"SLURM_STEP_ID", "0"}};
}

TEST(Identity, NothingSetIsAJobOfOne) {
  const Identity identity = find({});
  EXPECT_EQ(identity.rank, 0);
  EXPECT_EQ(identity.size, 1);
  EXPECT_EQ(identity.coordinator, "");
}

TEST(Identity, OptionsBeatVariables) {
  Options options;
  options.rank = 1;
  Knobs knobs;
  knobs.rank = 2;
  knobs.size = 3;
  knobs.coordinator = "a:1";
  const Identity identity = find(slurm_table(), options, knobs);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.size, 3);
  EXPECT_EQ(identity.coordinator, "a:1");
}

TEST(Identity, CoordinatorDescriptorIsForRankZeroOnly) {
  Knobs knobs;
  knobs.size = 2;
  knobs.coordinator = "a:1";
  knobs.coordinator_fd = 7;
  knobs.rank = 0;
  EXPECT_EQ(find({}, {}, knobs).coordinator_fd, 7);
  knobs.rank = 1;
  EXPECT_EQ(find({}, {}, knobs).coordinator_fd, -1);
}

TEST(Identity, Torchrun) {
  Table table = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  const Identity identity = find(table);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.size, 2);
  EXPECT_EQ(identity.coordinator, "10.0.0.1:19500");
  table["MASTER_PORT"] = "12345";
  EXPECT_EQ(find(table).coordinator, "10.0.0.1:22345");
  Knobs knobs;
  knobs.coordinator = "b:5";
  EXPECT_EQ(find(table, {}, knobs).coordinator, "b:5");
}

TEST(Identity, TorchrunInsideSlurmNumbersTheRanks) {
  Table table = slurm_table();
  table.insert(
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(find(table).rank, 2) << "a script's RANK does not beat the launcher";
  table["TORCHELASTIC_RUN_ID"] = "x";
  EXPECT_EQ(find(table).rank, 5);
  EXPECT_EQ(find(table).size, 8);
}

TEST(Identity, SlurmStep) {
  const Identity identity = find(slurm_table());
  EXPECT_EQ(identity.rank, 2);
  EXPECT_EQ(identity.size, 4);
  EXPECT_EQ(identity.coordinator, "node03:22345");
}

TEST(Identity, SlurmBatchScriptIsAJobOfOne) {
  Table table = slurm_table();
  table.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(find(table).size, 1);
}

TEST(Identity, SlurmStepsDiffer) {
  Table table = slurm_table();
  table["SLURM_STEP_ID"] = "1";
  EXPECT_NE(find(table).coordinator, find(slurm_table()).coordinator);
}

TEST(Identity, BadNodeListIsNamed) {
  Table table = slurm_table();
  table["SLURM_STEP_NODELIST"] = "node[";
  expect_mention(complaint(table), "SLURM_STEP_NODELIST");
}

TEST(Identity, OpenMpiNeedsACoordinator) {
  const Table table = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  expect_mention(complaint(table), "ROPEWALK_COORDINATOR");
  Knobs knobs;
  knobs.coordinator = "a:1";
  EXPECT_EQ(find(table, {}, knobs).rank, 1);
}

TEST(Identity, PmiUnderSlurmTakesSlurmsCoordinator) {
  Table table = slurm_table();
  table.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(find(table).coordinator, "node03:22345");
  table["PMI_RANK"] = "1";  // mpirun's own numbering
  expect_mention(complaint(table), "ROPEWALK_COORDINATOR");
}

TEST(Identity, RankWithoutSizeIsAnError) {
  expect_mention(complaint({{"PALS_RANKID", "1"}}), "ROPEWALK_SIZE");
  expect_mention(complaint({{"JOB_COMPLETION_INDEX", "1"}}), "ROPEWALK_SIZE");
  Knobs knobs;
  knobs.size = 4;
  knobs.coordinator = "job-0.svc:4000";
  EXPECT_EQ(find({{"JOB_COMPLETION_INDEX", "1"}}, {}, knobs).rank, 1);
}

TEST(Identity, ContradictionsAreNamed) {
  expect_mention(complaint({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "rank 2");
  expect_mention(complaint({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK=\"x\"");
  expect_mention(complaint({{"WORLD_SIZE", "2"}}), "ROPEWALK_RANK");
  expect_mention(complaint({{"RANK", "0"}}), "ROPEWALK_SIZE");
  Options options;
  options.rank = 0;
  options.size = 2;
  expect_mention(complaint({}, options), "where rank 0 listens");
  options.coordinator = "nonsense";
  expect_mention(complaint({}, options), "nonsense");
}

}  // namespace
}  // namespace ropewalk
