// Gather, scatter and both between local and global nodes (BS6 to BS8) are compared with their
// definitions: run serially on arrays that end at an inaccessible page, divided among two workers.
#include "families/streaming/args.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

// Lists of the local nodes of each global node (matrix Z). Local nodes in no list are masked.
struct Mesh {
  std::vector<std::vector<std::int64_t>> nodes;  // by global node
  std::int64_t local = 0;
};

// Global nodes with zero to eight local nodes each, in pseudo-random order.
Mesh mesh(std::int64_t global, std::int64_t masked) {
  Mesh m;
  std::int64_t taken = 0;
  for (std::int64_t g = 0; g < global; ++g) {
    m.nodes.emplace_back(at((g + global + scattered(g, 1, 3)) % 9));
    taken += std::ssize(m.nodes.back());
  }
  m.local = taken + masked;
  Integers order = ascending(m.local);
  std::stable_sort(order.begin(), order.end(), [](std::int64_t a, std::int64_t b) {
    return scattered(a, 2, 1 << 30) < scattered(b, 2, 1 << 30);
  });
  auto next = order.begin();
  for (auto& row : m.nodes) {
    for (std::int64_t& node : row) node = *next++;
  }
  return m;
}

// The ranges of two workers as shares of all iterations.
struct Shares {
  double begin;
  double cut;
  double end;
};

template <class T, class I>
void check(const RegisteredEntry& entry, const Mesh& m, const Shares& parts,
           std::int64_t distance) {
  const std::string kernel = entry.kernel;
  std::vector<I> starts = {0};
  std::vector<I> columns;
  std::vector<I> ids(at(m.local), I{-1});
  for (std::size_t g = 0; g < m.nodes.size(); ++g) {
    for (const std::int64_t node : m.nodes[g]) {
      columns.push_back(static_cast<I>(node));
      ids[at(node)] = static_cast<I>(g);
    }
    starts.push_back(static_cast<I>(columns.size()));
  }
  const std::vector<T> local = scattered_values<T>(m.local, 3, 2048);
  const std::vector<T> global = scattered_values<T>(std::ssize(m.nodes), 4, 2048);
  Fenced<T> local_nodes(local);
  Fenced<T> global_nodes(global);
  Fenced<I> fenced_starts(starts);
  Fenced<I> fenced_columns(columns);
  Fenced<I> fenced_ids(ids);

  StreamingArgs args;
  const bool scatters = kernel == "bs.bs7";
  args.index[0] = scatters ? fenced_ids.data() : fenced_starts.data();
  if (!scatters) args.index[1] = fenced_columns.data();
  args.streams = kernel == "bs.bs8" ? 1 : 2;
  args.stream[0] = kernel == "bs.bs6" ? global_nodes.data() : local_nodes.data();
  if (kernel != "bs.bs8") args.stream[1] = scatters ? global_nodes.data() : local_nodes.data();

  args.rows = scatters ? m.local : std::ssize(m.nodes);
  args.distance = distance;

  const auto count = static_cast<double>(args.rows);
  const auto place = [&](double share) { return static_cast<std::int64_t>(share * count); };
  const Range all = {place(parts.begin), place(parts.end)};
  entry.body(&args, {all.begin, place(parts.cut)}, 0);
  entry.body(&args, {place(parts.cut), all.end}, 1);

  std::vector<T> wanted_local = local;
  std::vector<T> wanted_global = global;
  for (std::int64_t i = all.begin; i < all.end; ++i) {
    if (scatters) {
      if (ids[at(i)] >= 0) wanted_local[at(i)] = global[at(ids[at(i)])];
      continue;
    }
    T sum = 0;
    for (const std::int64_t node : m.nodes[at(i)]) sum += local[at(node)];
    if (kernel == "bs.bs6") wanted_global[at(i)] = sum;
    if (kernel != "bs.bs8") continue;
    for (const std::int64_t node : m.nodes[at(i)]) wanted_local[at(node)] = sum;
  }
  EXPECT_EQ(local_nodes.values(), wanted_local);
  EXPECT_EQ(global_nodes.values(), wanted_global);
}

class OnMeshes : public ::testing::TestWithParam<RegisteredEntry> {};

TEST_P(OnMeshes, FollowsItsDefinition) {
  for (const std::int64_t global : {2, 3, 5, 9, 17, 40, 150}) {
    // No masked node, a few, and enough to mask whole vectors.
    for (const std::int64_t masked : {std::int64_t{0}, std::int64_t{1}, global / 5, 20 * global}) {
      const Mesh m = mesh(global, masked);
      for (const Shares& parts : {Shares{0, 1, 1}, {0, 0.4, 1}, {0.3, 0.6, 0.9}, {1, 1, 1}}) {
        // Lookups of addresses to prefetch must not read index arrays beyond their end.
        for (const std::int64_t distance : {0, 5, 100'000}) {
          with_types(GetParam(),
                     [&]<class T, class I>() { check<T, I>(GetParam(), m, parts, distance); });
          if (HasFailure()) {
            FAIL() << global << " global nodes, " << masked << " masked, from " << parts.begin
                   << " by " << parts.cut << " to " << parts.end << ", distance " << distance;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllEntries, OnMeshes,
                         ::testing::ValuesIn(entries_of({"bs.bs6", "bs.bs7", "bs.bs8"})), name_of);

}  // namespace
}  // namespace memkern
