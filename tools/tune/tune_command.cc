// ropewalk tune: measures what the planner predicts, in the job it runs in or in one of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>

#include "bootstrap/config.h"
#include "tools/bench/job.h"
#include "tools/bench/options.h"
#include "tools/command/command.h"
#include "tools/command/words.h"
#include "tools/launcher/hosts.h"
#include "tools/tune/tune.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kTuneExamples =
    "Examples:\n"
    "  ropewalk tune --hosts node1:8,node2:8\n"
    "  ropewalk tune -n 4 --sizes 8,4K,64K --collectives all_reduce\n"
    "  srun -n 64 ropewalk tune --output cluster.json       (joins the job)\n"
    "  ROPEWALK_TUNING=cluster.json ./train\n"
    "It takes minutes. Jobs on the same hosts use the saved profile by themselves, in place of "
    "the\n"
    "probe as they start; ROPEWALK_TUNING=none turns that off.\n"
    "Exit status: 0; 1 where a result was wrong or a rank failed; 2 for wrong input.";

constexpr std::array kTunable = {Collective::all_reduce, Collective::reduce_scatter,
                                 Collective::all_gather, Collective::broadcast, Collective::reduce};

struct TuneFlags {
  std::string hosts, remote_ropewalk, transport, output, jobs;
  std::string sizes = "8,512,4K,32K,256K,2M,8M";
  std::string collectives = "all_reduce,reduce_scatter,all_gather,broadcast,reduce";
  int ranks = 0;
};

std::vector<std::string> words_in(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

[[noreturn]] void refuse_flag(const std::string& why, const std::string& advice) {
  throw Error(ErrorCode::invalid_argument, "tune", why, advice);
}

TuneOptions options_of(const TuneFlags& flags) {
  TuneOptions options;
  for (const std::string& word : words_in(flags.collectives)) {
    const auto collective = collective_named(word);
    if (!collective || std::ranges::find(kTunable, *collective) == kTunable.end())
      refuse_flag(fmt::format("--collectives: \"{}\" cannot be tuned", word),
                  "choose from " + TuneFlags().collectives);
    options.collectives.push_back(*collective);
  }
  options.sizes = parse_size_list(flags.sizes);
  std::ranges::sort(options.sizes);
  for (const std::string& word : words_in(flags.jobs)) {
    const auto ranks = parse_size(word);
    if (!ranks || *ranks < 2 || *ranks > kRanksMax)
      refuse_flag(fmt::format("--jobs: \"{}\" is no number of ranks", word), "write --jobs 2,4,8");
    options.jobs.push_back(static_cast<int>(*ranks));
  }
  options.ranks = flags.ranks;
  options.transport = flags.transport;
  options.output = flags.output;
  return options;
}

}  // namespace

void add_tune_command(Command app, Request& request) {
  auto flags = std::make_shared<TuneFlags>();
  Command tune = app.add_command(
      "tune", "measure links and algorithms, and save what jobs here choose by", kTuneExamples);
  tune.add_option("-n,--ranks", flags->ranks, "how many ranks to start; default 2")
      .between(2, kRanksMax);
  tune.add_option("--hosts", flags->hosts, "hosts and their ranks, by ssh: node1:8,node2:8");
  tune.add_option("--remote-ropewalk", flags->remote_ropewalk,
                  "path of ropewalk on the other hosts; default: as here");
  tune.add_option("--transport", flags->transport, "default: ROPEWALK_TRANSPORT, else auto")
      .one_of(transport_words());
  tune.add_option("--collectives", flags->collectives, "which").show_default();
  tune.add_option("--sizes", flags->sizes, kSizesHelp).show_default();
  tune.add_option("--jobs", flags->jobs,
                  "sizes of the jobs to measure, in ranks; default: powers of two, and all");
  tune.add_option("--output", flags->output,
                  "file on rank 0's host; default: where jobs on these hosts find it");
  tune.set_action(request, [flags] {
    const TuneOptions options = options_of(*flags);
    if (is_inside_job()) return run_tune_rank(options);
    return launch_bench({.command = "ropewalk tune",
                         .count = flags->ranks,
                         .hosts = flags->hosts,
                         .remote_ropewalk = flags->remote_ropewalk});
  });
}

}  // namespace ropewalk::tools
