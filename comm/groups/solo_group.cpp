#include "comm/collective_info.h"
#include "comm/groups/group.h"

namespace zeroth::comm {
namespace {

class SoloGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Group> split(const Partition&) override { return make_solo_group(); }
  CollectiveHandle issue(const Collective& collective) override {
    check_tensor_shapes(collective, size());
    if (collective.out.data_ptr() != collective.in.data_ptr()) collective.out.copy_(collective.in);
    return {};
  }
};

}  // namespace

std::unique_ptr<Group> make_solo_group() {
  return std::make_unique<SoloGroup>();
}

}  // namespace zeroth::comm
