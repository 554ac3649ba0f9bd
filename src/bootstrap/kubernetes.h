// Kubernetes: where the pods of an Indexed Job, or of a JobSet's, find the first of them.
#pragma once

#include <string>

#include "bootstrap/config.h"

namespace ropewalk::bootstrap {

/// "FIRST-POD.DOMAIN:20000", as the pod of this completion index sees it. Such pods are called
/// NAME-INDEX, and the headless service that their `subdomain` names gives them a domain. Each has
/// an address, and so all ports, of its own. The name need not have an address yet. Throws
/// Error(invalid_argument) that says what the pod's spec lacks.
std::string kubernetes_coordinator(int index, const Lookup& get);

}  // namespace ropewalk::bootstrap
