package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newCode(c *cli) *cobra.Command {
	var expr, lang, function string
	cmd := &cobra.Command{
		Use:   "code [FILE] [INPUT]",
		Short: "Run a script once; nothing of it is kept",
		Long: `Run a script once, in a cell that is granted nothing, and print what its default export returns, or in Python its
function main. Console output goes to standard error. FILE may be - for standard input.

` + inputHelp,
		Example: `  skep code sums.ts '[1,2,3]'
  skep code -e 'export default () => 6 * 7'`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			code := client.Code{Code: expr, Language: lang, Function: function}
			if expr == "" {
				if len(args) == 0 {
					return usageError("name a file, or give the code with -e")
				}
				if err := c.readCode(args[0], &code); err != nil {
					return err
				}
				args = args[1:]
			}
			input, err := c.jsonInput(args)
			if err != nil {
				return err
			}
			code.Input = input
			cl, err := c.client()
			if err != nil {
				return err
			}
			result, err := cl.RunCode(cmd.Context(), code)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(result)
			}
			for _, line := range result.Logs {
				io.WriteString(c.stderr, line.Level.String()+": "+line.Message+"\n")
			}
			return c.printBytes(result.Output)
		},
	}
	cmd.Flags().StringVarP(&expr, "eval", "e", "", "the code itself")
	cmd.Flags().StringVar(&lang, "lang", "", "ts, js or python; ts unless the file's name says otherwise")
	cmd.Flags().StringVar(&function, "function", "", "the export to call instead of the default one")
	return cmd
}

func (c *cli) readCode(name string, code *client.Code) error {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(c.stdin)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "read the code", Err: err}
	}
	code.Code = string(b)
	if languages := map[string]string{".js": "js", ".mjs": "js", ".py": "python"}; code.Language == "" {
		code.Language = languages[filepath.Ext(name)]
	}
	return nil
}
