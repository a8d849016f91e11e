// The CPU's kernels, named cpu_insert and so on, for a program that has those of the GPU too. Their namespace has
// another name as well, since some inline functions differ between the two.
#define replay cpu_replay
#define replay_insert cpu_insert
#define replay_update cpu_update
#define replay_read cpu_read
#define replay_sample cpu_sample
#define replay_sample_groups cpu_sample_groups
#define replay_update_priorities cpu_update_priorities
#define replay_delete cpu_delete
#define replay_advance cpu_advance
#define replay_info cpu_info
#define replay_end_episodes cpu_end_episodes
#define replay_reset cpu_reset
#define replay_sums cpu_sums
#define replay_summary cpu_summary
#define replay_measure cpu_measure
#define replay_signature cpu_signature
#include "cpu/kernels.cc"
#include "cpu/sample_kernels.cc"
