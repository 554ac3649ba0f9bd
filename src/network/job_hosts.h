// Which of the hosts that are described are those of a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "network/network.h"

namespace ropewalk {

/// What is described, as a job numbers its hosts. `hosts`: by rank, number of its host; `names`: by
/// rank, its host's; empty: not known. Where the description has the names of all hosts of the job,
/// they are found by these: the job may be of a part of what is described, and its hosts have the
/// ranks that it has there. Else the hosts are taken to be described in the order of their ranks:
/// there must be as many, with as many ranks each. Throws Error(invalid_argument) that says in what
/// the job differs; the ranks of a host must follow each other. Pure.
Network network_of_job(const Network& described, const std::vector<int>& hosts,
                       const std::vector<std::string>& names);

/// Of some of its ranks, as a part of the job numbers them. Nothing where they are on one host, or
/// those of a host do not follow each other. Pure.
std::optional<Network> network_of_part(const Network& whole, const std::vector<int>& ranks);

}  // namespace ropewalk
