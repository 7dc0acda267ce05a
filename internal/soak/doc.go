// Soak runs Skep under mixed load for a long time: ten apps, of which one is hostile, on one runtime with a real store and
// real cells. It tells whether the others notice, and whether anything is left behind.
//
//	go run ./internal/soak --for 30m [--isolation process [--kill-workers]] [--attack KIND] [--json FILE]
//
// The first part is quiet: the nine apps alone. Then the hostile one runs its attacks in turn until the end. The nine make
// short calls, calls that compute, modules, calls of other agents, runs with events, and new versions of their code, with
// pauses. Wanted are: no error for them, but for calls of a worker that was killed, which fail as unavailable; their slowest
// percent within twice of quiet; resident memory that does not grow; and no goroutine and no open file that stays behind.
//
// The report says of each of these whether it holds, and what the others' slowest percent was beside each attack. The exit status is 1
// when something was not as wanted. The latencies depend on what else the machine does; for how long it stood still, as virtual ones do, is
// said too, when this is root.
package main
