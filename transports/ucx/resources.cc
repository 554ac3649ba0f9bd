#include "transports/ucx/resources.h"

#include <algorithm>

#include "transports/ucx/wires.h"

namespace ropewalk::ucx {
namespace {

std::vector<uct_md_resource_desc_t> domains_of(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (lib().uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (lib().uct_component_query(component, &attributes) != UCS_OK) return {};
  return domains;
}

void add_resources(uct_component_h component, const std::string& name,
                   std::vector<Resource>& found) {
  const uct_md_h domain = open_domain(component, name);
  if (domain == nullptr) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (lib().uct_md_query_tl_resources(domain, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i)
      found.push_back({resources[i].tl_name, resources[i].dev_name, resources[i].dev_type});
    lib().uct_release_tl_resource_list(resources);
  }
  lib().uct_md_close(domain);
}

}  // namespace

uct_md_h open_domain(uct_component_h component, const std::string& name) {
  uct_md_config_t* config = nullptr;
  if (lib().uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return nullptr;
  uct_md_h opened = nullptr;
  const ucs_status_t status = lib().uct_md_open(component, name.c_str(), config, &opened);
  lib().uct_config_release(config);
  return status == UCS_OK ? opened : nullptr;
}

void for_each_domain(const VisitDomain& visit) {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (lib().uct_query_components(&components, &count) != UCS_OK) return;
  for (unsigned i = 0; i < count; ++i)
    for (const uct_md_resource_desc_t& domain : domains_of(components[i]))
      visit(components[i], domain.md_name);
  lib().uct_release_component_list(components);
}

std::vector<Resource> find_resources() {
  std::vector<Resource> found;
  for_each_domain([&found](uct_component_h component, const std::string& name) {
    add_resources(component, name, found);
  });
  return found;
}

bool uses_tcp(const Config& config) {
  if (!allows_transport(config.wires(), "tcp")) return false;
  std::vector<Resource> found;
  for_each_domain([&found](uct_component_h component, const std::string& name) {
    if (name == "tcp") add_resources(component, name, found);
  });
  const std::string devices = config.devices();
  return std::any_of(found.begin(), found.end(), [&devices](const Resource& resource) {
    return allows_device(devices, resource.device);
  });
}

std::string version() {
  return lib().ucp_get_version_string();
}

}  // namespace ropewalk::ucx
