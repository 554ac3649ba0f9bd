#include <gtest/gtest.h>

#include <map>

#include "bootstrap/world.h"

namespace ropewalk {
namespace {

using Table = std::map<std::string, std::string>;

JobIdentity find(const Table& table, const Options& options = {}, const Config& config = {}) {
  return find_identity(options, config, [&table](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

std::string complaint(const Table& table, const Options& options = {}, const Config& config = {}) {
  try {
    const JobIdentity identity = find(table, options, config);
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

TEST(JobIdentity, NothingSetIsAJobOfOne) {
  const JobIdentity identity = find({});
  EXPECT_EQ(identity.rank, 0);
  EXPECT_EQ(identity.size, 1);
  EXPECT_EQ(identity.coordinator, "");
}

TEST(JobIdentity, OptionsBeatVariables) {
  Options options;
  options.rank = 1;
  Config config;
  config.rank = 2;
  config.size = 3;
  config.coordinator = "a:1";
  const JobIdentity identity = find(slurm_table(), options, config);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.size, 3);
  EXPECT_EQ(identity.coordinator, "a:1");
}

TEST(JobIdentity, OptionsOfNoRanksAreRefused) {
  for (const int size : {0, -1}) {
    Options options;
    options.rank = 0;
    options.size = size;
    expect_mention(complaint({}, options), "a job has 1 rank or more");
  }
}

TEST(JobIdentity, CoordinatorDescriptorIsForRankZeroOnly) {
  Config config;
  config.size = 2;
  config.coordinator = "a:1";
  config.coordinator_fd = 7;
  config.rank = 0;
  EXPECT_EQ(find({}, {}, config).coordinator_fd, 7);
  config.rank = 1;
  EXPECT_EQ(find({}, {}, config).coordinator_fd, -1);
}

TEST(JobIdentity, Torchrun) {
  Table table = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  const JobIdentity identity = find(table);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.size, 2);
  EXPECT_EQ(identity.coordinator, "10.0.0.1:19500");
  table["MASTER_PORT"] = "12345";
  EXPECT_EQ(find(table).coordinator, "10.0.0.1:22345");
  Config config;
  config.coordinator = "b:5";
  EXPECT_EQ(find(table, {}, config).coordinator, "b:5");
}

TEST(JobIdentity, TorchrunInsideSlurmNumbersTheRanks) {
  Table table = slurm_table();
  table.insert(
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "29500"}});
  expect_mention(complaint(table), "Slurm's SLURM_PROCID=2, SLURM_NTASKS=4");
  expect_mention(complaint(table), "RANK=5, WORLD_SIZE=8");
  table["TORCHELASTIC_RUN_ID"] = "x";
  EXPECT_EQ(find(table).rank, 5);
  EXPECT_EQ(find(table).size, 8);
}

TEST(JobIdentity, SlurmStep) {
  const JobIdentity identity = find(slurm_table());
  EXPECT_EQ(identity.rank, 2);
  EXPECT_EQ(identity.size, 4);
  EXPECT_EQ(identity.coordinator, "node03:22345");
}

TEST(JobIdentity, SlurmNeedsNoMungeWhereThereIsAKey) {
  Config config;
  EXPECT_EQ(find(slurm_table(), {}, config).discovery, DiscoveryMethod::munge);
  EXPECT_EQ(find(slurm_table(), {}, config).launcher_job, "12345.0");
  config.job_key = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(find(slurm_table(), {}, config).discovery, DiscoveryMethod::coordinator);
  EXPECT_EQ(find(slurm_table(), {}, config).coordinator, "node03:22345");
}

TEST(JobIdentity, SlurmWithPmi2SpeaksIt) {
  Table table = slurm_table();
  table.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}, {"PMI_JOBID", "12345.0"}});
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::pmi);
  EXPECT_EQ(find(table).launcher_job, "12345.0");
}

TEST(JobIdentity, PmixTellsTheSize) {
  Table table = slurm_table();
  table.insert({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.3.0"}});
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::pmix);
  EXPECT_EQ(find(table).rank, 2);
  EXPECT_EQ(find(table).size, 4) << "Slurm tells it, where PMIx is its own";
  EXPECT_EQ(find(table).coordinator, "node03:22345") << "where there is no libpmix";
  table["PMIX_NAMESPACE"] = "prterun-1@1";
  EXPECT_EQ(find(table).size, 0);
  EXPECT_EQ(find(table).coordinator, "");
  Config config;
  config.coordinator = "a:1";
  EXPECT_EQ(find(table, {}, config).discovery, DiscoveryMethod::coordinator);
  EXPECT_EQ(find(table, {}, config).size, 4);
}

TEST(JobIdentity, OneProcessOfSlurmsIsAJobOfOneWithoutPmix) {
  Table table = slurm_table();
  table["SLURM_PROCID"] = "0";
  table["SLURM_NTASKS"] = "1";
  table.insert({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.3.0"}});
  EXPECT_EQ(find(table).size, 1);
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::coordinator);
}

TEST(JobIdentity, SallocsShellIsNoRank) {
  Table table = slurm_table();
  table["SLURM_PROCID"] = "0";
  table["SLURM_STEP_ID"] = "4294967290";
  EXPECT_EQ(find(table).size, 1);
  table.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}});
  EXPECT_EQ(find(table).size, 4);
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::pmi);
  EXPECT_EQ(find(table).coordinator, "");
}

TEST(JobIdentity, ALauncherOfOneProcessIsTheOuterOne) {
  Table table = slurm_table();  // srun -n1 mpiexec -n 4
  table["SLURM_PROCID"] = "0";
  table["SLURM_NTASKS"] = "1";
  table.insert({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.3.0"}});
  table.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}});
  for (const char* rank : {"0", "2"}) {
    table["PMI_RANK"] = rank;
    EXPECT_EQ(find(table).size, 4);
    EXPECT_EQ(find(table).discovery, DiscoveryMethod::pmi);
  }
  Table script = slurm_table();  // srun -n1 of what starts ranks by itself
  script["SLURM_PROCID"] = "0";
  script["SLURM_NTASKS"] = "1";
  script.insert(
      {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(find(script).rank, 5);
}

TEST(JobIdentity, OpenMpiWithPmixNeedsNoCoordinator) {
  const Table table = {{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"PMIX_RANK", "1"},
                       {"PMIX_NAMESPACE", "prterun-1"}};
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::pmix);
  EXPECT_EQ(find(table).size, 2);
}

TEST(JobIdentity, LaunchersThatDisagreeAreNamed) {
  Table table = {{"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "2"},
                 {"PMI_RANK", "0"},
                 {"PMI_SIZE", "2"}};
  expect_mention(complaint(table), "Open MPI's OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2");
  expect_mention(complaint(table), "PMI's PMI_RANK=0, PMI_SIZE=2");
  Config config;
  config.rank = 1;
  config.size = 2;
  config.coordinator = "a:1";
  EXPECT_EQ(find(table, {}, config).rank, 1);
}

TEST(JobIdentity, AJobOfMpirunWithinASlurmStepIsMpiruns) {
  Table table = slurm_table();
  table.insert({{"OMPI_COMM_WORLD_RANK", "1"},
                {"OMPI_COMM_WORLD_SIZE", "2"},
                {"PMIX_RANK", "1"},
                {"PMIX_NAMESPACE", "prterun-1"}});
  EXPECT_EQ(find(table).rank, 1);
  EXPECT_EQ(find(table).size, 2);
  EXPECT_EQ(find(table).passed_over.back(),
            "Slurm's SLURM_PROCID=2, SLURM_NTASKS=4 (Open MPI runs within it)");
}

TEST(JobIdentity, LaunchersThatAreNotTakenAreToldWithTheReason) {
  const Table open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"PMIX_RANK", "1"},
                          {"PMIX_NAMESPACE", "prterun-1"}};
  EXPECT_EQ(describe(find(open_mpi)),
            "Open MPI's OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE: rank 1 of 2, coordinator told "
            "by the launcher's PMIx server (PMIX_NAMESPACE); not taken: PMIx's PMIX_RANK=1 (Open "
            "MPI says the same)");
  const auto expect_reason = [&](Table other, const std::string& reason) {
    other.insert(open_mpi.begin(), open_mpi.end());
    expect_mention(describe(find(other)), ("; not taken: " + reason).c_str());
  };
  expect_reason({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
                "Slurm's SLURM_PROCID=0 (this is no process of a step of srun's)");
  expect_reason({{"RANK", "0"}}, "torchrun's RANK=0 (WORLD_SIZE is not set)");
  Table outer = slurm_table();
  outer["SLURM_PROCID"] = "0";
  outer["SLURM_NTASKS"] = "1";
  expect_reason(outer,
                "Slurm's SLURM_PROCID=0, SLURM_NTASKS=1 (it has started one process, and Open MPI "
                "the ranks)");
  Table without_pmix = open_mpi;
  without_pmix.erase("PMIX_NAMESPACE");
  Config config;
  config.coordinator = "a:1";
  expect_mention(describe(find(without_pmix, {}, config)), "PMIX_RANK=1 (PMIX_NAMESPACE is not");
  config.rank = 0;
  config.size = 4;
  expect_mention(
      describe(find(open_mpi, {}, config)),
      "ROPEWALK_RANK, ROPEWALK_SIZE: rank 0 of 4, coordinator a:1; not taken: Open MPI's "
      "OMPI_COMM_WORLD_RANK=1 (overridden by ROPEWALK_RANK, ROPEWALK_SIZE)");
}

// A size without a rank made each rank a job of one.
TEST(JobIdentity, APartOfALaunchersVariablesIsAnError) {
  struct Half {
    const char *present, *value, *missing;
  };
  for (const Half& half : {Half{"OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK"},
                           Half{"PMI_SIZE", "4", "PMI_RANK"}, Half{"WORLD_SIZE", "4", "RANK"},
                           Half{"PMIX_NAMESPACE", "prterun-1", "PMIX_RANK"},
                           Half{"PMIX_RANK", "1", "PMIX_NAMESPACE"}}) {
    const std::string text =
        fmt::format("{}={} is set, and {} is not", half.present, half.value, half.missing);
    expect_mention(complaint({{half.present, half.value}}), text.c_str());
    Table slurm = slurm_table();
    slurm[half.present] = half.value;
    EXPECT_EQ(find(slurm).rank, 2) << half.present;
  }
  Table step = slurm_table();
  step.erase("SLURM_PROCID");
  expect_mention(complaint(step),
                 "SLURM_STEP_NODELIST=node[03-04] is set, and SLURM_PROCID is not");
  expect_mention(complaint({{"OMPI_COMM_WORLD_RANK", "1"}}), "OMPI_COMM_WORLD_SIZE is not set");
}

TEST(JobIdentity, WhatIsNoPartOfAJobIsAJobOfOne) {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"})
    EXPECT_EQ(find({{size, "1"}}).size, 1) << size;
  Table shell = slurm_table();  // salloc's
  shell.erase("SLURM_PROCID");
  shell.erase("SLURM_STEP_ID");
  shell.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(find(shell).size, 1);
  shell = slurm_table();  // the same, in a step of its own
  shell.erase("SLURM_PROCID");
  shell["SLURM_STEP_ID"] = "4294967290";
  EXPECT_EQ(find(shell).size, 1);
  Config config;
  config.rank = 0;
  config.size = 1;
  EXPECT_EQ(find({{"PMI_SIZE", "4"}}, {}, config).size, 1);
}

TEST(JobIdentity, AnOddRankOfRopewalksVariablesNamesThem) {
  Config config;
  config.size = 4;
  const auto expect_reason = [&](const Table& table, const char* reason) {
    expect_mention(complaint(table, {}, config), reason);
  };
  expect_reason({}, "the job's size is 4 (ROPEWALK_SIZE), but this process's rank is not known");
  expect_reason({{"RANK", "4"}},
                "rank 4 is out of range for a job of 4 (ROPEWALK_SIZE; torchrun's");
  config.rank = 4;
  expect_reason({}, "rank 4 is out of range for a job of 4 (ROPEWALK_RANK, ROPEWALK_SIZE)");
  config.size.reset();
  expect_reason({}, "this process's rank is 4 (ROPEWALK_RANK), but the job's size is not known");
}

TEST(JobIdentity, SlurmBatchScriptIsAJobOfOne) {
  Table table = slurm_table();
  table.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(find(table).size, 1);
}

TEST(JobIdentity, SlurmStepsDiffer) {
  Table table = slurm_table();
  table["SLURM_STEP_ID"] = "1";
  EXPECT_NE(find(table).coordinator, find(slurm_table()).coordinator);
}

TEST(JobIdentity, BadNodeListIsNamed) {
  Table table = slurm_table();
  table["SLURM_STEP_NODELIST"] = "node[";
  expect_mention(complaint(table), "SLURM_STEP_NODELIST");
}

TEST(JobIdentity, OpenMpiNeedsACoordinator) {
  const Table table = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  expect_mention(complaint(table), "ROPEWALK_COORDINATOR");
  Config config;
  config.coordinator = "a:1";
  EXPECT_EQ(find(table, {}, config).rank, 1);
}

TEST(JobIdentity, OverPmiTheLauncherTellsTheCoordinator) {
  Table table = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  expect_mention(complaint(table), "ROPEWALK_COORDINATOR");
  table["PMI_FD"] = "7";
  EXPECT_EQ(find(table).pmi_fd, 7);
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::pmi);
  Config config;
  config.coordinator = "a:1";
  EXPECT_EQ(find(table, {}, config).discovery, DiscoveryMethod::coordinator);
  table["PMI_FD"] = "seven";
  expect_mention(complaint(table), "PMI_FD=\"seven\"");
}

TEST(JobIdentity, PmiUnderSlurmTakesSlurmsCoordinator) {
  Table table = slurm_table();
  table.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(find(table).coordinator, "node03:22345");
  EXPECT_EQ(find(table).discovery, DiscoveryMethod::munge);
  table["PMI_RANK"] = "1";  // mpirun's own numbering
  expect_mention(complaint(table), "ROPEWALK_COORDINATOR");
}

TEST(JobIdentity, RankWithoutSizeIsAnError) {
  expect_mention(complaint({{"PALS_RANKID", "1"}}), "ROPEWALK_SIZE");
  expect_mention(complaint({{"JOB_COMPLETION_INDEX", "1"}}), "ROPEWALK_SIZE");
}

TEST(JobIdentity, KubernetesPodsFindTheFirstOfThem) {
  Config config;
  config.size = 16;
  const Table table = {{"JOB_COMPLETION_INDEX", "12"},
                       {"HOSTNAME", "train-worker-0-12.train.default.svc.cluster.local"}};
  EXPECT_EQ(find(table, {}, config).coordinator,
            "train-worker-0-0.train.default.svc.cluster.local:20000");
}

TEST(JobIdentity, KubernetesPodsThatCannotFindTheFirstSayWhatTheirSpecLacks) {
  Config config;
  config.size = 16;
  for (const char* host : {"node7", "train-2", "-1", ""}) {
    const std::string text =
        complaint({{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", host}}, {}, config);
    expect_mention(text, "JOB_COMPLETION_INDEX=1");
    expect_mention(text, fmt::format("HOSTNAME=\"{}\"", host).c_str());
    expect_mention(text, "ROPEWALK_COORDINATOR=host:port");
  }
  Table table = {{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", "no-such-pod-1"}};
  expect_mention(complaint(table, {}, config), "`subdomain`");
  table.insert({{"MASTER_ADDR", "leader"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(find(table, {}, config).coordinator, "leader:19500");
}

TEST(JobIdentity, KubernetesTakesACoordinatorThatIsTold) {
  Config config;
  config.size = 4;
  config.coordinator = "job-0.svc:4000";
  EXPECT_EQ(find({{"JOB_COMPLETION_INDEX", "1"}}, {}, config).rank, 1);
}

// TORCHELASTIC_RUN_ID and RANK, handed on by a shell, hid the launcher that ran the ranks.
TEST(JobIdentity, HalfOfTorchrunsVariablesHideNoLauncher) {
  const JobIdentity identity = find({{"TORCHELASTIC_RUN_ID", "x"},
                                     {"RANK", "0"},
                                     {"OMPI_COMM_WORLD_RANK", "1"},
                                     {"OMPI_COMM_WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "host"},
                                     {"MASTER_PORT", "29500"}});
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.size, 2);
}

TEST(JobIdentity, ContradictionsAreNamed) {
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
