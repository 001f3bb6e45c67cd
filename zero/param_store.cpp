#include "zero/param_store.h"

#include <algorithm>

#include "base/error.h"

namespace zeroth::zero {
namespace {

size_t byte_size(const torch::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.element_size();
}

// A 1-D tensor whose storage gets its memory later.
torch::Tensor without_memory(int64_t numel, torch::Dtype dtype, torch::Device device) {
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  const torch::Tensor tensor = torch::empty({0}, torch::TensorOptions(device).dtype(dtype));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, tensor.device()), c10::GetAllocator(device.type()),
                       /*resizable=*/true);
  return tensor.set_(storage, 0, {numel}, {1});
}

c10::DataPtr swap_memory(const torch::Tensor& tensor, c10::DataPtr memory) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  c10::DataPtr old = std::move(storage->mutable_data_ptr());
  storage->set_data_ptr_noswap(std::move(memory));
  return old;
}

// Elements that a unit's whole buffer adds to what is live.
int64_t cost(const UnitPlan& plan, const ParamStoreOptions& options, size_t unit) {
  return options.retention[unit] == Retention::kRelease ? plan.units[unit].layout.numel() : 0;
}

}  // namespace

void check_max_live(const UnitPlan& plan, const ParamStoreOptions& options) {
  int64_t needed = 0;
  size_t where = 0;
  for (size_t block = 0; block < plan.block_units.size(); ++block) {
    std::vector<size_t> both = plan.block_units[block];
    if (block + 1 < plan.block_units.size()) {
      const auto& next = plan.block_units[block + 1];
      both.insert(both.end(), next.begin(), next.end());
    }
    std::sort(both.begin(), both.end());
    both.erase(std::unique(both.begin(), both.end()), both.end());
    int64_t sum = 0;
    for (const size_t unit : both) sum += cost(plan, options, unit);
    if (sum > needed) {
      needed = sum;
      where = block;
    }
  }
  if (options.max_live_elements > 0 && needed > options.max_live_elements) {
    throw Error(
        "zero_optimization.stage3_max_live_parameters is {}, but block {} and the one after it "
        "hold {} elements together: 0 gathers no block ahead, else the smallest value that works "
        "is {}",
        options.max_live_elements, plan.block_labels[where], needed, needed);
  }
}

Lease::~Lease() {
  if (store_ != nullptr) store_->end_lease(block_);
}

ParamStore::ParamStore(const UnitPlan& plan, comm::Group& group, torch::Device device,
                       ParamStoreOptions options)
    : plan_(plan),
      group_(group),
      device_(device),
      options_(std::move(options)),
      pool_(device),
      on_device_(offload::make_memory_store(device)),
      states_(plan.units.size()),
      stale_(plan.units.size(), Stale::kNo) {
  ZEROTH_CHECK(options_.retention.size() == plan.units.size(), "{} retentions for {} units",
               options_.retention.size(), plan.units.size());
  check_max_live(plan, options_);
  options_.rests.resize(plan.units.size(), nullptr);
  for (offload::ShardStore*& store : options_.rests) {
    if (store == nullptr) store = on_device_.get();
  }
  const torch::NoGradGuard no_grad;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    create(unit);
    bind_parameters(unit);
  }
}

ParamStore::~ParamStore() = default;

void ParamStore::create(size_t unit) {
  const FlatLayout& layout = plan_.units[unit].layout;
  State& state = states_[unit];
  if (released(unit)) {
    state.full = without_memory(layout.numel(), options_.dtype, device_);
    state.number = options_.rests[unit]->add(layout.shard_numel(), options_.dtype);
    return;
  }
  state.full = torch::zeros({layout.numel()}, torch::TensorOptions(device_).dtype(options_.dtype));
  const Range range = shard_range(unit);
  state.shard = state.full.narrow(0, range.begin, range.size());
  state.present = true;
}

// The blocks keep their tensor objects; only what these refer to changes. shallow_copy_from also
// gives the parameter a version counter of its own, so that a gather into the buffer does not upset
// a kept graph.
void ParamStore::bind_parameters(size_t unit) {
  const Unit& described = plan_.units[unit];
  for (size_t i = 0; i < described.params.size(); ++i) {
    const Slot& slot = described.layout.slots()[i];
    const torch::Tensor view = at::as_strided(states_[unit].full, slot.shape,
                                              c10::contiguous_strides(slot.shape), slot.offset);
    described.params[i].unsafeGetTensorImpl()->shallow_copy_from(view.getIntrusivePtr());
  }
}

Range ParamStore::shard_range(size_t unit) const {
  const FlatLayout& layout = plan_.units[unit].layout;
  if (options_.retention[unit] == Retention::kWhole) return {0, layout.numel()};
  return layout.shard(group_.rank());
}

int64_t ParamStore::cost(size_t unit) const {
  return zero::cost(plan_, options_, unit);
}

offload::Tile ParamStore::tile(size_t unit) const {
  return {states_[unit].number, 0, plan_.units[unit].layout.shard_numel()};
}

bool ParamStore::any_stale(const std::vector<Stale>& stale) {
  return std::any_of(stale.begin(), stale.end(), [](Stale unit) { return unit != Stale::kNo; });
}

bool ParamStore::on_device(size_t unit) const {
  return !released(unit) || options_.rests[unit] == on_device_.get();
}

// With one rank a shard is all: what was copied to the device for the lease is the unit.
bool ParamStore::lent_whole(size_t unit) const {
  return group_.size() == 1 && options_.staging && !on_device(unit);
}

offload::TileLease ParamStore::shard(size_t unit, torch::Device device, offload::Access access) {
  if (access == offload::Access::kRead && stale_[unit] != Stale::kNo) update_(unit);
  const bool lent = on_device(unit) && device != device_;
  offload::TileLease lease =
      released(unit) ? options_.rests[unit]->borrow(tile(unit), lent ? device_ : device, access)
                     : offload::TileLease(states_[unit].shard);
  if (!lent) return lease;
  ZEROTH_CHECK(options_.staging, "unit {} lies on {}, asked for {}", plan_.units[unit].name,
               device_.str(), device.str());
  const bool idle = stale_[unit] != Stale::kNo;
  return options_.staging->lease(lease.tensor(), device, access,
                                 idle ? idle_ : options_.staging->now());
}

void ParamStore::will_update(size_t unit, bool reads) {
  stale_[unit] = reads ? Stale::kReadFirst : Stale::kOverwritten;
  if (options_.staging) idle_ = options_.staging->now();
}

void ParamStore::expect(std::vector<size_t> visits) {
  visits_ = std::move(visits);
  position_ = 0;
  if (visits_.empty()) drop_all_but({});
  expect_reads();
}

void ParamStore::expect_reads() const {
  if (stores() == std::set<offload::ShardStore*>{on_device_.get()}) return;  // nothing is read
  std::map<offload::ShardStore*, std::vector<offload::Tile>> reads;
  for (offload::ShardStore* store : stores()) reads[store];
  std::vector<Stale> stale = stale_;
  // Behind the last update it would be too early for what is updated before it, and push that out.
  const auto ends = [&, updates = any_stale(stale)] { return updates && !any_stale(stale); };
  std::vector<size_t> present;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    if (states_[unit].present) present.push_back(unit);
  }
  for (size_t position = position_; position < visits_.size() && !ends(); ++position) {
    std::vector<size_t> units = wanted(position, stale);
    for (const size_t unit : units) {
      if (ends()) break;
      const bool was = std::find(present.begin(), present.end(), unit) != present.end();
      const bool written = std::exchange(stale[unit], Stale::kNo) == Stale::kOverwritten;
      // What an update has just written is still at hand.
      if (!was && !written && released(unit)) reads[options_.rests[unit]].push_back(tile(unit));
    }
    present = std::move(units);
  }
  for (auto& [store, tiles] : reads) store->expect(std::move(tiles));
}

Lease ParamStore::gather(size_t block) {
  std::vector<size_t> units = plan_.block_units[block];
  if (position_ < visits_.size()) {
    ZEROTH_CHECK(visits_[position_] == block, "block {} is visited, {} was expected", block,
                 visits_[position_]);
    units = wanted(position_++, stale_);
  }
  drop_all_but(units);
  for (const size_t unit : units) {
    if (stale_[unit] != Stale::kNo) {
      update_(unit);
      if (!any_stale(stale_)) expect_reads();
    }
    start_gather(unit);
  }
  for (const size_t unit : plan_.block_units[block]) {
    end_gather(unit);
    ++states_[unit].leases;
  }
  return Lease(*this, block);
}

std::vector<size_t> ParamStore::wanted(size_t position, const std::vector<Stale>& stale) const {
  std::vector<size_t> units = plan_.block_units[visits_[position]];
  int64_t live = 0;
  for (const size_t unit : units) live += cost(unit);
  int64_t ahead = 0;
  for (size_t p = position + 1; p < visits_.size() && options_.prefetch_elements > 0; ++p) {
    if (units.size() == plan_.units.size()) break;
    std::vector<size_t> more;
    int64_t elements = 0;
    int64_t made_live = 0;
    bool updates = false;
    for (const size_t unit : plan_.block_units[visits_[p]]) {
      if (std::find(units.begin(), units.end(), unit) != units.end()) continue;
      more.push_back(unit);
      made_live += cost(unit);
      updates = updates || stale[unit] != Stale::kNo;
      if (cost(unit) > 0 || !states_[unit].present || updates) {
        elements += plan_.units[unit].layout.numel();
      }
    }
    // Compute need not wait for more updates than those of the next block.
    const bool fits = ahead == 0 || (!updates && ahead + elements <= options_.prefetch_elements);
    if (!fits || live + made_live > options_.max_live_elements) break;
    ahead += elements;
    live += made_live;
    units.insert(units.end(), more.begin(), more.end());
  }
  return units;
}

void ParamStore::start_gather(size_t unit) {
  State& state = states_[unit];
  if (state.present) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor shard = state.shard;
  if (released(unit)) {
    if (reading_.size() >= options_.max_reads) end_gather(reading_.front());
    // What can fail comes before anything is counted.
    offload::TileLease gathered =
        options_.rests[unit]->borrow(tile(unit), device_, offload::Access::kRead);
    shard = gathered.tensor();
    swap_memory(state.full, lent_whole(unit) ? c10::DataPtr(shard.data_ptr(), state.full.device())
                                             : pool_.take(byte_size(state.full)));
    state.gathered = std::move(gathered);
    live_elements_ += state.full.numel();
    peak_live_elements_ = std::max(peak_live_elements_, live_elements_);
    if (lent_whole(unit)) {
      state.present = true;
      return;
    }
    reading_.push_back(unit);
  }
  // An alias with its own version counter: a graph kept from forward still refers to the
  // parameters.
  state.pending = group_.all_gather(state.full.variable_data(), shard,
                                    "parameters of " + plan_.units[unit].place());
  state.present = true;
}

void ParamStore::end_gather(size_t unit) {
  states_[unit].pending.wait();
  if (std::erase(reading_, unit) > 0) states_[unit].gathered = {};
}

void ParamStore::drop(size_t unit) {
  State& state = states_[unit];
  if (!state.present || !released(unit)) return;
  end_gather(unit);
  c10::DataPtr memory = swap_memory(state.full, c10::DataPtr(nullptr, state.full.device()));
  if (lent_whole(unit)) {
    state.gathered = {};
  } else {
    pool_.give(byte_size(state.full), std::move(memory));
  }
  live_elements_ -= state.full.numel();
  state.present = false;
}

void ParamStore::drop_all_but(const std::vector<size_t>& kept) {
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const bool keep = std::find(kept.begin(), kept.end(), unit) != kept.end();
    if (!keep && states_[unit].leases == 0) drop(unit);
  }
}

void ParamStore::end_lease(size_t block) {
  for (const size_t unit : plan_.block_units[block]) --states_[unit].leases;
}

void ParamStore::updated(size_t unit) {
  State& state = states_[unit];
  ZEROTH_CHECK(state.leases == 0, "unit {} is updated while leased", plan_.units[unit].name);
  drop(unit);
  stale_[unit] = Stale::kNo;
  if (options_.retention[unit] == Retention::kRefresh) {
    state.pending.wait();
    state.present = false;
  }
}

int64_t ParamStore::planned_live_elements() const {
  int64_t most = 0;
  for (size_t position = 0; position < visits_.size(); ++position) {
    int64_t live = 0;
    for (const size_t unit : wanted(position, stale_)) live += cost(unit);
    most = std::max(most, live);
  }
  return most;
}

int64_t ParamStore::resting_bytes() const {
  int64_t bytes = 0;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    if (!released(unit)) bytes += static_cast<int64_t>(byte_size(states_[unit].full));
  }
  for (const offload::ShardStore* store : stores()) {
    bytes += store->bytes().device + store->bytes().host;
  }
  return bytes;
}

std::set<offload::ShardStore*> ParamStore::stores() const {
  return {options_.rests.begin(), options_.rests.end()};
}

}  // namespace zeroth::zero
