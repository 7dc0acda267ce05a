package main

import (
	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/host/worker"
)

const workerVerb = "worker"

// newWorker is what skep serve starts for each app. It is of no use to people.
func newWorker() *cobra.Command {
	return &cobra.Command{
		Use:    workerVerb,
		Short:  "Run cells for a server that started this process",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return worker.Main(cmd.Context()) },
	}
}
