// What `ropewalk simulate --plot` and `ropewalk explain --plot` draw of calls.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulate/plan.h"
#include "simulate/synthesized.h"
#include "tools/command/command_line.h"
#include "tools/plot/figure.h"

namespace ropewalk::tools {

/// So many ranks are told apart in a diagram.
inline constexpr int kRanksDrawn = 32;

/// The options of both commands.
struct PictureFlags {
  std::string plot;   // file; empty: none
  std::string sizes;  // as in parse_size_list; empty: powers of four around that of the call
};
void add_picture_options(Command command, PictureFlags& flags);
/// Before anything is done that takes time. Throws Error(invalid_argument) of `command`.
std::optional<PlotFile> open_plot(const PictureFlags& flags, const std::string& command);
/// Ascending; `bytes`, those of the call, are among them, and alone where nothing is drawn, or
/// nothing else can be. Throws Error(invalid_argument) of `command`.
std::vector<size_t> plot_sizes(const PictureFlags& flags, Collective collective, size_t bytes,
                               const std::string& command);

/// What algorithms take: time in us over bytes; and the lower bound, which may be 0: not drawn.
struct TimesOverSize {
  std::map<Algorithm, std::vector<PlotPoint>> algorithms;
  std::vector<PlotPoint> synthesized;  // schedules made for the network; none: not drawn
  std::vector<PlotPoint> bound;
};
/// Lines; bars where there is one size only.
Panel times_panel(const std::string& title, const TimesOverSize& times);

/// A space-time diagram of a call, which it simulates; of more than kRanksDrawn ranks, or of what
/// is too long to be drawn, a sentence.
Panel schedule_panel(Routes& routes, const CallToSimulate& call);

/// In place of all: a job of one rank.
Panel lone_rank_panel();

/// How busy the busiest links were; a sentence where no link was used.
Panel links_panel(const Network& network, const SimulatedCall& call);

/// "h1 > rack0".
std::string link_text(const Network& network, LinkWay way);

}  // namespace ropewalk::tools
