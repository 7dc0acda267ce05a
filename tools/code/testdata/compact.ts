declare const tools: {
  desktop_commander: {
    /** Create a new directory or ensure a directory exists. */
    create_directory(args: {path: string}): Promise<unknown>;
    /** Apply surgical edits to files. */
    edit_block(args: {file_path: string; old_string?: string; new_string?: string; expected_replacements?: number; range?: string; content?: unknown; options?: Record<string, unknown>; origin?: "ui" | "llm"}): Promise<unknown>;
    /** Force terminate a running terminal session. */
    force_terminate(args: {pid: number}): Promise<unknown>;
    /** Get the complete server configuration as JSON. */
    get_config(args?: {origin?: "ui" | "llm"}): Promise<unknown>;
    /** Retrieve detailed metadata about a file or directory including: size creation time last modified time permissions type lineCount (for text files) lastLine… */
    get_file_info(args: {path: string}): Promise<unknown>;
    /** Get more results from an active search with offset-based pagination. */
    get_more_search_results(args: {sessionId: string; offset?: number; length?: number}): Promise<unknown>;
    /** Retrieve a specific Desktop Commander onboarding prompt by ID and execute it. */
    get_prompts(args: {action: "get_prompt"; promptId: string}): Promise<unknown>;
    /** Get recent local tool call history with arguments and outputs. */
    get_recent_tool_calls(args?: {maxResults?: number; toolName?: string; since?: string}): Promise<unknown>;
    /** Get usage statistics for debugging and analysis. */
    get_usage_stats(): Promise<unknown>;
    /** Open feedback form in browser to provide feedback about Desktop Commander. */
    give_feedback_to_desktop_commander(): Promise<unknown>;
    /** Send input to an existing terminal or REPL process and return newly available output. */
    interact_with_process(args: {pid: number; input: string; timeout_ms?: number; wait_for_prompt?: boolean; verbose_timing?: boolean}): Promise<unknown>;
    /** Terminate a running process by PID. */
    kill_process(args: {pid: number}): Promise<unknown>;
    /** Get a detailed listing of all files and directories in a specified path. */
    list_directory(args: {path: string; depth?: number; origin?: "ui" | "llm"}): Promise<unknown>;
    /** List all running processes. */
    list_processes(): Promise<unknown>;
    /** List all active searches. */
    list_searches(): Promise<unknown>;
    /** List all active terminal sessions. */
    list_sessions(): Promise<unknown>;
    /** Move or rename files and directories. */
    move_file(args: {source: string; destination: string}): Promise<unknown>;
    /** Read contents from files and URLs. */
    read_file(args: {path: string; isUrl?: boolean; offset?: number; length?: number; sheet?: string; range?: string; options?: Record<string, unknown>; origin?: "ui" | "llm"}): Promise<unknown>;
    /** Read the contents of multiple files simultaneously. */
    read_multiple_files(args: {paths: string[]}): Promise<unknown>;
    /** Read output from a running process with file-like pagination support. */
    read_process_output(args: {pid: number; timeout_ms?: number; offset?: number; length?: number; verbose_timing?: boolean}): Promise<unknown>;
    /** Set a specific configuration value by key. */
    set_config_value(args: {key: string; value: string | number | boolean | string[] | null; origin?: "ui" | "llm"}): Promise<unknown>;
    /** Start a terminal process on the authorized device with intelligent state detection. */
    start_process(args: {command: string; timeout_ms: number; shell?: string; verbose_timing?: boolean; origin?: "ui" | "llm"}): Promise<unknown>;
    /** Start a streaming search that can return results progressively. */
    start_search(args: {path: string; pattern: string; searchType?: "files" | "content"; filePattern?: string; ignoreCase?: boolean; maxResults?: number; includeHidden?: boolean; contextLines?: number; timeout_ms?: number; earlyTermination?: boolean; literalSearch?: boolean; origin?: "ui" | "llm"}): Promise<unknown>;
    /** Stop an active search. */
    stop_search(args: {sessionId: string}): Promise<unknown>;
    /** Write or append to file contents. */
    write_file(args: {path: string; content: string; mode?: "rewrite" | "append"; origin?: "ui" | "llm"}): Promise<unknown>;
    /** Create a new PDF file or modify an existing one. */
    write_pdf(args: {path: string; content: string | ({type: "insert"; pageIndex: number; markdown?: string; sourcePdfPath?: string; pdfOptions?: Record<string, unknown>} | {type: "delete"; pageIndexes: number[]})[]; outputPath?: string; options?: Record<string, unknown>}): Promise<unknown>;
  };
  everything: {
    /** Echoes back the input string */
    echo(args: {message: string}): Promise<unknown>;
    /** Demonstrates how annotations can be used to provide metadata about content. */
    get_annotated_message(args: {messageType: "error" | "success" | "debug"; includeImage?: boolean}): Promise<unknown>;
    /** Returns all environment variables, helpful for debugging MCP server configuration */
    get_env(): Promise<unknown>;
    /** Returns up to ten resource links that reference different types of resources */
    get_resource_links(args?: {count?: number}): Promise<unknown>;
    /** Returns a resource reference that can be used by MCP clients */
    get_resource_reference(args?: {resourceType?: "Text" | "Blob"; resourceId?: number}): Promise<unknown>;
    /** Lists the current MCP roots provided by the client. */
    get_roots_list(): Promise<unknown>;
    /** Returns structured content along with an output schema for client data validation */
    get_structured_content(args: {location: "New York" | "Chicago" | "Los Angeles"}): Promise<{temperature: number; conditions: string; humidity: number}>;
    /** Returns the sum of two numbers */
    get_sum(args: {a: number; b: number}): Promise<unknown>;
    /** Returns a tiny MCP logo image. */
    get_tiny_image(): Promise<unknown>;
    /** Compresses a single file using gzip compression. */
    gzip_file_as_resource(args?: {name?: string; data?: string; outputType?: "resourceLink" | "resource"}): Promise<unknown>;
    /** Simulates a deep research operation that gathers, analyzes, and synthesizes information. */
    simulate_research_query(args: {topic: string; ambiguous?: boolean}): Promise<unknown>;
    /** Toggles simulated, random-leveled logging on or off. */
    toggle_simulated_logging(): Promise<unknown>;
    /** Toggles simulated resource subscription updates on or off. */
    toggle_subscriber_updates(): Promise<unknown>;
    /** Trigger a Request from the Server for User Elicitation */
    trigger_elicitation_request(): Promise<unknown>;
    /** Demonstrates a long running operation with progress updates. */
    trigger_long_running_operation(args?: {duration?: number; steps?: number}): Promise<unknown>;
  };
  filesystem: {
    /** Create a new directory or ensure a directory exists. */
    create_directory(args: {path: string}): Promise<{content: string}>;
    /** Get a recursive tree view of files and directories as a JSON structure. */
    directory_tree(args: {path: string; excludePatterns?: string[]}): Promise<{content: string}>;
    /** Make line-based edits to a text file. */
    edit_file(args: {path: string; edits: {oldText: string; newText: string}[]; dryRun?: boolean}): Promise<{content: string}>;
    /** Retrieve detailed metadata about a file or directory. */
    get_file_info(args: {path: string}): Promise<{content: string}>;
    /** Returns the list of directories that this server is allowed to access. */
    list_allowed_directories(): Promise<{content: string}>;
    /** Get a detailed listing of all files and directories in a specified path. */
    list_directory(args: {path: string}): Promise<{content: string}>;
    /** Get a detailed listing of all files and directories in a specified path, including sizes. */
    list_directory_with_sizes(args: {path: string; sortBy?: "name" | "size"}): Promise<{content: string}>;
    /** Move or rename files and directories. */
    move_file(args: {source: string; destination: string}): Promise<{content: string}>;
    /** Read the complete contents of a file as text. */
    read_file(args: {path: string; tail?: number; head?: number}): Promise<{content: string}>;
    /** Read a file and return it as a base64-encoded content block with its MIME type. */
    read_media_file(args: {path: string}): Promise<{content: ({type: "image" | "audio"; data: string; mimeType: string} | {type: "resource"; resource: {uri: string; mimeType?: string; blob: string}})[]}>;
    /** Read the contents of multiple files simultaneously. */
    read_multiple_files(args: {paths: string[]}): Promise<{content: string}>;
    /** Read the complete contents of a file from the file system as text. */
    read_text_file(args: {path: string; tail?: number; head?: number}): Promise<{content: string}>;
    /** Recursively search for files and directories matching a pattern. */
    search_files(args: {path: string; pattern: string; excludePatterns?: string[]}): Promise<{content: string}>;
    /** Create a new file or completely overwrite an existing file with new content. */
    write_file(args: {path: string; content: string}): Promise<{content: string}>;
  };
  git: {
    /** Stage files for commit. */
    git_add(args?: {path?: string; paths?: string[]; update?: boolean; all?: boolean; force?: boolean}): Promise<{success: boolean; stagedFiles: string[]; totalFiles: number; status: {current_branch: string | null; staged_changes: object; unstaged_changes: object; untracked_files: string[]; conflicted_files: string[]; is_clean: boolean}}>;
    /** Show line-by-line authorship information for a file, displaying who last modified each line and when. */
    git_blame(args: {path?: string; filePath: string; startLine?: number; endLine?: number; ignoreWhitespace?: boolean}): Promise<{success: boolean; filePath: string; lines: {lineNumber: number; commitHash: string; author: string; timestamp: number; content: string}[]; totalLines: number}>;
    /** Manage branches: list all branches, show current branch, create a new branch, delete a branch, or rename a branch. */
    git_branch(args?: {path?: string; mode?: "list" | "create" | "delete" | "rename" | "show-current"; branchName?: string; newBranchName?: string; startPoint?: string; force?: boolean; all?: boolean; remote?: boolean; merged?: boolean | string; noMerged?: boolean | string; limit?: number}): Promise<{success: boolean; mode: "list" | "create" | "delete" | "rename" | "show-current"; branches?: {name: string; current: boolean; commitHash: string; upstream?: string; ahead?: number; behind?: number}[]; currentBranch?: string; message?: string}>;
    /** Gather git history context (commits, tags) and structured review instructions to support LLM-driven changelog analysis. */
    git_changelog_analyze(args: {path?: string; reviewTypes: ("security" | "features" | "storyline" | "gaps" | "breaking_changes" | "quality")[]; maxCommits?: number; maxTags?: number; sinceTag?: string; branch?: string}): Promise<{success: boolean; reviewTypes: ("security" | "features" | "storyline" | "gaps" | "breaking_changes" | "quality")[]; gitContext: {currentBranch: string | null; totalCommitsFetched: number; commits: {hash: string; subject: string; author: string; timestamp: number; refs?: string[]}[]; tags: {name: string; commit: string; timestamp?: number; message?: string}[]}; reviewInstructions: string}>;
    /** Switch branches or restore working tree files. */
    git_checkout(args: {path?: string; target: string; createBranch?: boolean; force?: boolean; paths?: string[]; track?: boolean}): Promise<{success: boolean; target: string; branchCreated: boolean; filesModified: string[]}>;
    /** Cherry-pick commits from other branches. */
    git_cherry_pick(args: {path?: string; commits: string[]; noCommit?: boolean; continueOperation?: boolean; abort?: boolean; mainline?: number; strategy?: "ort" | "recursive" | "octopus" | "ours" | "subtree"; signoff?: boolean}): Promise<{success: boolean; pickedCommits: string[]; conflicts: boolean; conflictedFiles: string[]; message?: string}>;
    /** Remove untracked files from the working directory. */
    git_clean(args?: {path?: string; force?: boolean; dryRun?: boolean; directories?: boolean; ignored?: boolean}): Promise<{success: boolean; filesRemoved: string[]; directoriesRemoved: string[]; dryRun: boolean}>;
    /** Clear the session working directory setting. */
    git_clear_working_dir(args: {confirm: "Y" | "y" | "Yes" | "yes"}): Promise<{success: boolean; message: string; previousPath?: string}>;
    /** Clone a repository from a remote URL or local path. */
    git_clone(args: {url: string; path: string; branch?: string; depth?: number; bare?: boolean; mirror?: boolean}): Promise<{success: boolean; remoteUrl: string; path: string; branch: string; commitHash?: string}>;
    /** Create a new commit with staged changes in the repository. */
    git_commit(args: {path?: string; message: string; author?: {name: string; email: string}; amend?: boolean; allowEmpty?: boolean; noVerify?: boolean; filesToStage?: string[]}): Promise<{success: boolean; commitHash: string; message: string; author: string; timestamp: number; filesChanged?: number; committedFiles: string[]; insertions?: number; deletions?: number; signed: boolean; signingWarning?: string; status: {current_branch: string | null; staged_changes: object; unstaged_changes: object; untracked_files: string[]; conflicted_files: string[]; is_clean: boolean}}>;
    /** View differences between commits, branches, or working tree. */
    git_diff(args?: {path?: string; target?: string; source?: string; paths?: string[]; staged?: boolean; includeUntracked?: boolean; nameOnly?: boolean; stat?: boolean; contextLines?: number; autoExclude?: boolean}): Promise<{success: boolean; diff: string; filesChanged: number; insertions?: number; deletions?: number; excludedFiles?: string[]}>;
    /** Fetch updates from a remote repository. */
    git_fetch(args?: {path?: string; remote?: string; prune?: boolean; tags?: boolean; depth?: number}): Promise<{success: boolean; remote: string; fetchedRefs: string[]; prunedRefs: string[]}>;
    /** Initialize a new Git repository at the specified path. */
    git_init(args?: {path?: string; initialBranch?: string; bare?: boolean}): Promise<{success: boolean; path: string; initialBranch: string; isBare: boolean}>;
    /** View commit history with optional filtering by author, date range, file path, or commit message pattern. */
    git_log(args?: {path?: string; maxCount?: number; skip?: number; since?: string; until?: string; author?: string; grep?: string; branch?: string; filePath?: string; oneline?: boolean; stat?: boolean; patch?: boolean; showSignature?: boolean}): Promise<{success: boolean; commits: {hash: string; shortHash: string; author?: string; authorEmail?: string; timestamp?: number; subject: string; body?: string; parents?: string[]; refs?: string[]; stat?: string; patch?: string}[]; totalCount: number; note?: string}>;
    /** Merge branches together. */
    git_merge(args: {path?: string; branch: string; strategy?: "ort" | "recursive" | "octopus" | "ours" | "subtree"; noFastForward?: boolean; squash?: boolean; message?: string; abort?: boolean}): Promise<{success: boolean; strategy: string; fastForward: boolean; conflicts: boolean; conflictedFiles: string[]; mergedFiles: string[]; message: string}>;
    /** Pull changes from a remote repository. */
    git_pull(args?: {path?: string; remote?: string; branch?: string; rebase?: boolean; fastForwardOnly?: boolean}): Promise<{success: boolean; remote: string; branch: string; strategy: "merge" | "rebase" | "fast-forward"; conflicts: boolean; conflictedFiles: string[]; filesChanged: string[]}>;
    /** Push changes to a remote repository. */
    git_push(args?: {path?: string; remote?: string; branch?: string; force?: boolean; forceWithLease?: boolean; setUpstream?: boolean; tags?: boolean; dryRun?: boolean; delete?: boolean; remoteBranch?: string; confirmed?: boolean}): Promise<{success: boolean; remote: string; branch: string; upstreamSet: boolean; pushedRefs: string[]; rejectedRefs: string[]}>;
    /** Rebase commits onto another branch. */
    git_rebase(args?: {path?: string; mode?: "start" | "continue" | "abort" | "skip"; upstream?: string; branch?: string; interactive?: boolean; onto?: string; preserve?: boolean}): Promise<{success: boolean; conflicts: boolean; conflictedFiles: string[]; rebasedCommits: number; currentCommit?: string; message?: string}>;
    /** View the reference logs (reflog) to track when branch tips and other references were updated. */
    git_reflog(args?: {path?: string; ref?: string; maxCount?: number}): Promise<{success: boolean; ref: string; entries: {hash: string; refName: string; action: string; message: string; timestamp: number}[]; totalEntries: number}>;
    /** Manage remote repositories: list remotes, add new remotes, remove remotes, rename remotes, or get/set remote URLs. */
    git_remote(args?: {path?: string; mode?: "list" | "add" | "remove" | "rename" | "get-url" | "set-url"; name?: string; url?: string; newName?: string; push?: boolean}): Promise<{success: boolean; mode: string; remotes?: {name: string; fetchUrl: string; pushUrl: string}[]; url?: string; added?: {name: string; url: string}; removed?: string; renamed?: {from: string; to: string}}>;
    /** Reset current HEAD to specified state. */
    git_reset(args?: {path?: string; mode?: "soft" | "mixed" | "hard" | "merge" | "keep"; target?: string; paths?: string[]; confirmed?: boolean}): Promise<{success: boolean; mode: string; target: string; previousCommit?: string; filesReset: string[]}>;
    /** Set the session working directory for all git operations so subsequent calls can omit the path parameter. */
    git_set_working_dir(args: {path: string; validateGitRepo?: boolean; initializeIfNotPresent?: boolean}): Promise<{success: boolean; path: string; message: string; repository?: {status: {branch: string | null; isClean: boolean; staged: string[]; unstaged: string[]; untracked: string[]; conflicts: string[]; upstream?: string; ahead?: number; behind?: number}; recentCommits: {hash: string; author: string; date: string; subject: string}[]; recentTags: {name: string; date?: string; tagger?: string; annotationSubject?: string; annotationBody?: string}[]; remotes: {name: string; fetchUrl: string; pushUrl: string}[]}; enrichmentWarnings?: string[]}>;
    /** Show details of a git object (commit, tree, blob, or tag). */
    git_show(args: {path?: string; object: string; format?: "raw"; stat?: boolean; filePath?: string}): Promise<{success: boolean; object: string; type: "commit" | "tag" | "tree" | "blob"; content: string; metadata?: object}>;
    /** Manage stashes: list stashes, save current changes (push), restore changes (pop/apply), or remove stashes (drop/clear). */
    git_stash(args?: {path?: string; mode?: "list" | "push" | "pop" | "apply" | "drop" | "clear"; message?: string; stashRef?: string; includeUntracked?: boolean; keepIndex?: boolean; limit?: number}): Promise<{success: boolean; mode: string; stashes?: {ref: string; index: number; branch: string; description: string; timestamp: number}[]; created?: string; applied?: string; dropped?: string; conflicts?: boolean}>;
    /** Show the working tree status including staged, unstaged, and untracked files. */
    git_status(args?: {path?: string; includeUntracked?: boolean}): Promise<{success: boolean; currentBranch: string | null; upstream?: string; ahead?: number; behind?: number; isClean: boolean; stagedChanges: {added?: string[]; modified?: string[]; deleted?: string[]; renamed?: string[]; copied?: string[]}; unstagedChanges: {added?: string[]; modified?: string[]; deleted?: string[]}; untrackedFiles: string[]; conflictedFiles: string[]}>;
    /** Manage tags: list all tags, create a new tag, delete a tag, or verify a signed tag. */
    git_tag(args?: {path?: string; mode?: "list" | "create" | "delete" | "verify"; tagName?: string; commit?: string; message?: string; annotated?: boolean; force?: boolean; limit?: number}): Promise<{success: boolean; mode: string; tags?: {name: string; commit: string; message?: string; annotationBody?: string; tagger?: string; timestamp?: number}[]; created?: string; deleted?: string; signed?: boolean; signingWarning?: string; verifiedTag?: string; verified?: boolean; signatureType?: "gpg" | "ssh" | "x509"; signerIdentity?: string; signerKey?: string; warning?: string; rawOutput?: string}>;
    /** Manage multiple working trees: list worktrees, add new worktrees for parallel work, remove worktrees, or move worktrees to new locations. */
    git_worktree(args?: {path?: string; mode?: "list" | "add" | "remove" | "move" | "prune"; worktreePath?: string; branch?: string; commitish?: string; force?: boolean; newPath?: string; detach?: boolean; verbose?: boolean; dryRun?: boolean}): Promise<{success: boolean; mode: string; worktrees?: {path: string; head: string; branch?: string; bare: boolean; detached: boolean; locked: boolean; prunable: boolean}[]; added?: string; removed?: string; moved?: {from: string; to: string}; pruned?: string[]}>;
    /** Returns a Git wrap-up protocol: an acceptance-criteria checklist the agent must satisfy before the session is considered shipped. */
    git_wrapup_instructions(args: {acknowledgement: "Y" | "y" | "Yes" | "yes"; createTag?: boolean}): Promise<{instructions: string; repository?: {status: {branch: string | null; isClean: boolean; staged: string[]; unstaged: string[]; untracked: string[]; conflicts: string[]; upstream?: string; ahead?: number; behind?: number}; recentCommits: {hash: string; author: string; date: string; subject: string}[]; recentTags: {name: string; date?: string; tagger?: string; annotationSubject?: string; annotationBody?: string}[]}; enrichmentWarnings?: string[]}>;
  };
  github: {
    /** Add a comment to an existing issue */
    add_issue_comment(args: {owner: string; repo: string; issue_number: number; body: string}): Promise<unknown>;
    /** Create a new branch in a GitHub repository */
    create_branch(args: {owner: string; repo: string; branch: string; from_branch?: string}): Promise<unknown>;
    /** Create a new issue in a GitHub repository */
    create_issue(args: {owner: string; repo: string; title: string; body?: string; assignees?: string[]; milestone?: number; labels?: string[]}): Promise<unknown>;
    /** Create or update a single file in a GitHub repository */
    create_or_update_file(args: {owner: string; repo: string; path: string; content: string; message: string; branch: string; sha?: string}): Promise<unknown>;
    /** Create a new pull request in a GitHub repository */
    create_pull_request(args: {owner: string; repo: string; title: string; body?: string; head: string; base: string; draft?: boolean; maintainer_can_modify?: boolean}): Promise<unknown>;
    /** Create a review on a pull request */
    create_pull_request_review(args: {owner: string; repo: string; pull_number: number; commit_id?: string; body: string; event: "APPROVE" | "REQUEST_CHANGES" | "COMMENT"; comments?: ({path: string; position: number; body: string} | {path: string; line: number; body: string})[]}): Promise<unknown>;
    /** Create a new GitHub repository in your account */
    create_repository(args: {name: string; description?: string; private?: boolean; autoInit?: boolean}): Promise<unknown>;
    /** Fork a GitHub repository to your account or specified organization */
    fork_repository(args: {owner: string; repo: string; organization?: string}): Promise<unknown>;
    /** Get the contents of a file or directory from a GitHub repository */
    get_file_contents(args: {owner: string; repo: string; path: string; branch?: string}): Promise<unknown>;
    /** Get details of a specific issue in a GitHub repository. */
    get_issue(args: {owner: string; repo: string; issue_number: number}): Promise<unknown>;
    /** Get details of a specific pull request */
    get_pull_request(args: {owner: string; repo: string; pull_number: number}): Promise<unknown>;
    /** Get the review comments on a pull request */
    get_pull_request_comments(args: {owner: string; repo: string; pull_number: number}): Promise<unknown>;
    /** Get the list of files changed in a pull request */
    get_pull_request_files(args: {owner: string; repo: string; pull_number: number}): Promise<unknown>;
    /** Get the reviews on a pull request */
    get_pull_request_reviews(args: {owner: string; repo: string; pull_number: number}): Promise<unknown>;
    /** Get the combined status of all status checks for a pull request */
    get_pull_request_status(args: {owner: string; repo: string; pull_number: number}): Promise<unknown>;
    /** Get list of commits of a branch in a GitHub repository */
    list_commits(args: {owner: string; repo: string; sha?: string; page?: number; perPage?: number}): Promise<unknown>;
    /** List issues in a GitHub repository with filtering options */
    list_issues(args: {owner: string; repo: string; direction?: "asc" | "desc"; labels?: string[]; page?: number; per_page?: number; since?: string; sort?: "created" | "updated" | "comments"; state?: "open" | "closed" | "all"}): Promise<unknown>;
    /** List and filter repository pull requests */
    list_pull_requests(args: {owner: string; repo: string; state?: "open" | "closed" | "all"; head?: string; base?: string; sort?: "created" | "updated" | "popularity" | "long-running"; direction?: "asc" | "desc"; per_page?: number; page?: number}): Promise<unknown>;
    /** Merge a pull request */
    merge_pull_request(args: {owner: string; repo: string; pull_number: number; commit_title?: string; commit_message?: string; merge_method?: "merge" | "squash" | "rebase"}): Promise<unknown>;
    /** Push multiple files to a GitHub repository in a single commit */
    push_files(args: {owner: string; repo: string; branch: string; files: {path: string; content: string}[]; message: string}): Promise<unknown>;
    /** Search for code across GitHub repositories */
    search_code(args: {q: string; order?: "asc" | "desc"; page?: number; per_page?: number}): Promise<unknown>;
    /** Search for issues and pull requests across GitHub repositories */
    search_issues(args: {q: string; order?: "asc" | "desc"; page?: number; per_page?: number; sort?: "comments" | "reactions" | "reactions-+1" | "reactions--1" | "reactions-smile" | "reactions-thinking_face" | "reactions-heart" | "reactions-tada" | "interactions" | "created" | "updated"}): Promise<unknown>;
    /** Search for GitHub repositories */
    search_repositories(args: {query: string; page?: number; perPage?: number}): Promise<unknown>;
    /** Search for users on GitHub */
    search_users(args: {q: string; order?: "asc" | "desc"; page?: number; per_page?: number; sort?: "followers" | "repositories" | "joined"}): Promise<unknown>;
    /** Update an existing issue in a GitHub repository */
    update_issue(args: {owner: string; repo: string; issue_number: number; title?: string; body?: string; assignees?: string[]; milestone?: number; labels?: string[]; state?: "open" | "closed"}): Promise<unknown>;
    /** Update a pull request branch with the latest changes from the base branch */
    update_pull_request_branch(args: {owner: string; repo: string; pull_number: number; expected_head_sha?: string}): Promise<unknown>;
  };
  hello_world: {
    /** Adds two numbers */
    add(args: {a: number; b: number}): Promise<unknown>;
    /** Lists all available tools and methods */
    debug(): Promise<unknown>;
    /** Echoes back a message with 'Hello' prefix */
    echo(args: {message: string}): Promise<unknown>;
  };
  kubernetes: {
    /** Cleanup all managed resources */
    cleanup(): Promise<unknown>;
    /** Execute a command in a Kubernetes pod or container and return the output. */
    exec_in_pod(args: {name: string; namespace?: string; command: string[]; container?: string; timeout?: number; context?: string}): Promise<unknown>;
    /** Get documentation for a Kubernetes resource or field */
    explain_resource(args: {resource: string; apiVersion?: string; recursive?: boolean; context?: string; output?: "plaintext" | "plaintext-openapiv2"}): Promise<unknown>;
    /** Install a Helm chart with support for both standard and template-based installation */
    install_helm_chart(args: {name: string; chart: string; namespace: string; context?: string; repo?: string; values?: Record<string, unknown>; valuesFile?: string; useTemplate?: boolean; createNamespace?: boolean}): Promise<unknown>;
    /** Apply a Kubernetes YAML manifest from a string or file */
    kubectl_apply(args?: {manifest?: string; filename?: string; namespace?: string; dryRun?: boolean; force?: boolean; context?: string}): Promise<unknown>;
    /** Manage Kubernetes contexts - list, get, or set the current context */
    kubectl_context(args: {operation: "list" | "get" | "set"; name?: string; showCurrent?: boolean; detailed?: boolean; output?: "json" | "yaml" | "name" | "custom"}): Promise<unknown>;
    /** Create Kubernetes resources using various methods (from file or using subcommands) */
    kubectl_create(args?: {dryRun?: boolean; output?: "json" | "yaml" | "name" | "go-template" | "go-template-file" | "template" | "templatefile" | "jsonpath" | "jsonpath-as-json" | "jsonpath-file"; validate?: boolean; manifest?: string; filename?: string; resourceType?: string; name?: string; namespace?: string; fromLiteral?: string[]; fromFile?: string[]; fromFileContent?: {key: string; content: string}[]; secretType?: "generic" | "docker-registry" | "tls"; serviceType?: "clusterip" | "nodeport" | "loadbalancer" | "externalname"; tcpPort?: string[]; image?: string; replicas?: number; port?: number; schedule?: string; suspend?: boolean; command?: string[]; labels?: string[]; annotations?: string[]; context?: string}): Promise<unknown>;
    /** Delete Kubernetes resources by resource type, name, labels, or from a manifest file */
    kubectl_delete(args?: {resourceType?: string; name?: string; namespace?: string; labelSelector?: string; manifest?: string; filename?: string; allNamespaces?: boolean; force?: boolean; gracePeriodSeconds?: number; context?: string}): Promise<unknown>;
    /** Describe Kubernetes resources by resource type, name, and optionally namespace */
    kubectl_describe(args: {resourceType: string; name: string; namespace?: string; context?: string; allNamespaces?: boolean}): Promise<unknown>;
    /** Execute any kubectl command with the provided arguments and flags */
    kubectl_generic(args: {command: string; subCommand?: string; resourceType?: string; name?: string; namespace?: string; allNamespaces?: boolean; outputFormat?: "json" | "yaml" | "wide" | "name" | "custom"; flags?: Record<string, unknown>; args?: string[]; context?: string}): Promise<unknown>;
    /** Get or list Kubernetes resources by resource type, name, and optionally namespace */
    kubectl_get(args: {resourceType: string; name?: string; namespace?: string; output?: "json" | "yaml" | "wide" | "name" | "custom"; allNamespaces?: boolean; labelSelector?: string; fieldSelector?: string; sortBy?: string; context?: string}): Promise<unknown>;
    /** Get logs from Kubernetes resources like pods, deployments, or jobs */
    kubectl_logs(args: {resourceType: "pod" | "deployment" | "job" | "cronjob"; name: string; namespace: string; container?: string; tail?: number; since?: string; sinceTime?: string; timestamps?: boolean; previous?: boolean; follow?: boolean; labelSelector?: string; context?: string}): Promise<unknown>;
    /** Update field(s) of a resource using strategic merge patch, JSON merge patch, or JSON patch */
    kubectl_patch(args: {resourceType: string; name: string; namespace?: string; patchType?: "strategic" | "merge" | "json"; patchData?: Record<string, unknown>; patchFile?: string; dryRun?: boolean; context?: string}): Promise<unknown>;
    /** Reconnect to the Kubernetes API server by recreating all API clients. */
    kubectl_reconnect(): Promise<unknown>;
    /** Manage the rollout of a resource (e.g., deployment, daemonset, statefulset) */
    kubectl_rollout(args: {subCommand: "history" | "pause" | "restart" | "resume" | "status" | "undo"; resourceType: "deployment" | "daemonset" | "statefulset"; name: string; namespace: string; revision?: number; toRevision?: number; timeout?: string; watch?: boolean; context?: string}): Promise<unknown>;
    /** Scale a Kubernetes deployment */
    kubectl_scale(args: {name: string; namespace?: string; replicas: number; resourceType?: string; context?: string}): Promise<unknown>;
    /** List the API resources available in the cluster */
    list_api_resources(args?: {apiGroup?: string; namespaced?: boolean; context?: string; verbs?: string[]; output?: "wide" | "name" | "no-headers"}): Promise<unknown>;
    /** Manage Kubernetes nodes with cordon, drain, and uncordon operations */
    node_management(args: {operation: "cordon" | "drain" | "uncordon"; nodeName?: string; force?: boolean; gracePeriod?: number; deleteLocalData?: boolean; ignoreDaemonsets?: boolean; timeout?: string; dryRun?: boolean; confirmDrain?: boolean}): Promise<unknown>;
    /** Verify that the counterpart is still responsive and the connection is alive. */
    ping(): Promise<unknown>;
    /** Forward a local port to a port on a Kubernetes resource */
    port_forward(args: {resourceType: string; resourceName: string; localPort: number; targetPort: number; namespace?: string}): Promise<unknown>;
    /** Stop a port-forward process */
    stop_port_forward(args: {id: string}): Promise<unknown>;
    /** Uninstall a Helm chart release */
    uninstall_helm_chart(args: {name: string; namespace: string; context?: string}): Promise<unknown>;
    /** Upgrade an existing Helm chart release */
    upgrade_helm_chart(args: {name: string; chart: string; namespace: string; context?: string; repo?: string; values?: Record<string, unknown>; valuesFile?: string}): Promise<unknown>;
  };
  memory: {
    /** Add new observations to existing entities in the knowledge graph */
    add_observations(args: {observations: {entityName: string; contents: string[]}[]}): Promise<{results: {entityName: string; addedObservations: string[]}[]}>;
    /** Create multiple new entities in the knowledge graph */
    create_entities(args: {entities: {name: string; entityType: string; observations: string[]}[]}): Promise<{entities: {name: string; entityType: string; observations: string[]}[]}>;
    /** Create multiple new relations between entities in the knowledge graph. */
    create_relations(args: {relations: {from: string; to: string; relationType: string}[]}): Promise<{relations: {from: string; to: string; relationType: string}[]}>;
    /** Delete multiple entities and their associated relations from the knowledge graph */
    delete_entities(args: {entityNames: string[]}): Promise<{success: boolean; message: string}>;
    /** Delete specific observations from entities in the knowledge graph */
    delete_observations(args: {deletions: {entityName: string; observations: string[]}[]}): Promise<{success: boolean; message: string}>;
    /** Delete multiple relations from the knowledge graph */
    delete_relations(args: {relations: {from: string; to: string; relationType: string}[]}): Promise<{success: boolean; message: string}>;
    /** Open specific nodes in the knowledge graph by their names */
    open_nodes(args: {names: string[]}): Promise<{entities: {name: string; entityType: string; observations: string[]}[]; relations: {from: string; to: string; relationType: string}[]}>;
    /** Read the entire knowledge graph */
    read_graph(): Promise<{entities: {name: string; entityType: string; observations: string[]}[]; relations: {from: string; to: string; relationType: string}[]}>;
    /** Search for nodes in the knowledge graph based on a query */
    search_nodes(args: {query: string}): Promise<{entities: {name: string; entityType: string; observations: string[]}[]; relations: {from: string; to: string; relationType: string}[]}>;
  };
  pdf: {
    /** Open a PDF in an interactive viewer. */
    display_pdf(args?: {url?: string; page?: number; elicit_form_inputs?: boolean}): Promise<{viewUUID: string; url: string; initialPage: number; totalBytes: number; formFieldValues?: Record<string, string | boolean>; formFields?: {name: string; type: string; page: number; label?: string; x: number; y: number; width: number; height: number; exportValue?: string; options?: string[]}[]}>;
    /** Interact with a PDF viewer: annotate, navigate, search, extract text/screenshots, fill forms. */
    interact(args: {viewUUID: string; action?: "navigate" | "search" | "find" | "search_navigate" | "zoom" | "add_annotations" | "update_annotations" | "remove_annotations" | "highlight_text" | "fill_form" | "get_text" | "get_screenshot" | "get_viewer_state" | "save_as"; page?: number; query?: string; matchIndex?: number; scale?: number; annotations?: Record<string, unknown>[]; ids?: string[]; color?: string; content?: string; fields?: {name: string; value: string | boolean}[]; intervals?: {start?: number; end?: number}[]; path?: string; overwrite?: boolean; commands?: {action: "navigate" | "search" | "find" | "search_navigate" | "zoom" | "add_annotations" | "update_annotations" | "remove_annotations" | "highlight_text" | "fill_form" | "get_text" | "get_screenshot" | "get_viewer_state" | "save_as"; page?: number; query?: string; matchIndex?: number; scale?: number; annotations?: Record<string, unknown>[]; ids?: string[]; color?: string; content?: string; fields?: {name: string; value: string | boolean}[]; intervals?: {start?: number; end?: number}[]; path?: string; overwrite?: boolean}[]}): Promise<unknown>;
    /** List available PDFs that can be displayed */
    list_pdfs(): Promise<unknown>;
    /** Poll for pending commands for a PDF viewer. */
    poll_pdf_commands(args: {viewUUID: string}): Promise<unknown>;
    /** Read a range of bytes from a PDF (max 512KB per request). */
    read_pdf_bytes(args: {url: string; offset?: number; byteCount?: number}): Promise<{url: string; bytes: string; offset: number; byteCount: number; totalBytes: number; hasMore: boolean}>;
    /** Save annotated PDF bytes back to a local file. */
    save_pdf(args: {url: string; data: string}): Promise<{filePath: string; mtimeMs: number}>;
    /** Submit rendered page data for a get_pages request (used by viewer). */
    submit_page_data(args: {requestId: string; pages: {page: number; text?: string; image?: string}[]}): Promise<unknown>;
    /** Submit annotated PDF bytes for a save_as request (used by viewer). */
    submit_save_data(args: {requestId: string; data?: string; error?: string}): Promise<unknown>;
    /** Submit a viewer-state snapshot for a get_viewer_state request (used by viewer). */
    submit_viewer_state(args: {requestId: string; state?: string; error?: string}): Promise<unknown>;
  };
  playwright: {
    /** Perform click on a web page */
    browser_click(args: {element?: string; target: string; doubleClick?: boolean; button?: "left" | "right" | "middle"; modifiers?: ("Alt" | "Control" | "ControlOrMeta" | "Meta" | "Shift")[]}): Promise<unknown>;
    /** Close the page */
    browser_close(): Promise<unknown>;
    /** Returns all console messages */
    browser_console_messages(args: {level: "error" | "warning" | "info" | "debug"; all?: boolean; filename?: string}): Promise<unknown>;
    /** Perform drag and drop between two elements */
    browser_drag(args: {startElement?: string; startTarget: string; endElement?: string; endTarget: string}): Promise<unknown>;
    /** Drop files or MIME-typed data onto an element, as if dragged from outside the page. */
    browser_drop(args: {element?: string; target: string; paths?: string[]; data?: Record<string, string>}): Promise<unknown>;
    /** Emulate CSS media features for the page, for example switch between the light and dark color scheme. */
    browser_emulate_media(args?: {colorScheme?: "light" | "dark" | null; reducedMotion?: "reduce" | "no-preference" | null; forcedColors?: "active" | "none" | null; contrast?: "more" | "no-preference" | null; media?: "screen" | "print" | null}): Promise<unknown>;
    /** Evaluate JavaScript expression on page or element */
    browser_evaluate(args: {element?: string; target?: string; function: string; filename?: string}): Promise<unknown>;
    /** Upload one or multiple files */
    browser_file_upload(args?: {paths?: string[]}): Promise<unknown>;
    /** Fill multiple form fields */
    browser_fill_form(args: {fields: {element?: string; target: string; name: string; type: "textbox" | "checkbox" | "radio" | "combobox" | "slider"; value: string}[]}): Promise<unknown>;
    /** Search the accessibility snapshot of the current page for text or a regular expression. */
    browser_find(args?: {text?: string; regex?: string; filename?: string}): Promise<unknown>;
    /** Handle a dialog */
    browser_handle_dialog(args: {accept: boolean; promptText?: string}): Promise<unknown>;
    /** Hover over element on page */
    browser_hover(args: {element?: string; target: string}): Promise<unknown>;
    /** Navigate to a URL */
    browser_navigate(args: {url: string}): Promise<unknown>;
    /** Go back to the previous page in the history */
    browser_navigate_back(): Promise<unknown>;
    /** Returns full details (headers and body) of a single network request, or a single part if `part` is set. */
    browser_network_request(args: {index: number; part?: "request-headers" | "request-body" | "response-headers" | "response-body"; filename?: string}): Promise<unknown>;
    /** Returns a numbered list of network requests since loading the page. */
    browser_network_requests(args: {static: boolean; filter?: string; filename?: string}): Promise<unknown>;
    /** Press a key on the keyboard */
    browser_press_key(args: {key: string}): Promise<unknown>;
    /** Resize the browser window */
    browser_resize(args: {width: number; height: number}): Promise<unknown>;
    /** Run a Playwright code snippet. */
    browser_run_code_unsafe(args?: {code?: string; filename?: string}): Promise<unknown>;
    /** Select an option in a dropdown */
    browser_select_option(args: {element?: string; target: string; values: string[]}): Promise<unknown>;
    /** Capture accessibility snapshot of the current page, this is better than screenshot */
    browser_snapshot(args?: {target?: string; filename?: string; depth?: number; boxes?: boolean}): Promise<unknown>;
    /** List, create, close, or select a browser tab. */
    browser_tabs(args: {action: "list" | "new" | "close" | "select"; index?: number; url?: string}): Promise<unknown>;
    /** Take a screenshot of the current page. */
    browser_take_screenshot(args: {element?: string; target?: string; type?: "png" | "jpeg" | "webp"; filename?: string; fullPage?: boolean; scale: "css" | "device"}): Promise<unknown>;
    /** Type text into editable element */
    browser_type(args: {element?: string; target: string; text: string; submit?: boolean; slowly?: boolean}): Promise<unknown>;
    /** Wait for text to appear or disappear or a specified time to pass */
    browser_wait_for(args?: {time?: number; text?: string; textGone?: string}): Promise<unknown>;
  };
  sequential_thinking: {
    /** A detailed tool for dynamic and reflective problem-solving through thoughts. */
    sequentialthinking(args: {thought: string; nextThoughtNeeded: boolean | string; thoughtNumber: number; totalThoughts: number; isRevision?: boolean | string; revisesThought?: number; branchFromThought?: number; branchId?: string; needsMoreThoughts?: boolean | string}): Promise<{thoughtNumber: number; totalThoughts: number; nextThoughtNeeded: boolean; branches: string[]; thoughtHistoryLength: number}>;
  };
  system_monitor: {
    /** Returns system information, including hostname, platform, CPU info, and memory. */
    get_system_info(): Promise<{hostname: string; platform: string; arch: string; cpu: {model: string; count: number}; memory: {totalBytes: number}}>;
    /** Returns dynamic system metrics for polling: per-core CPU timing, memory usage, and uptime. */
    poll_system_stats(): Promise<{cpu: {cores: {idle: number; total: number}[]}; memory: {usedBytes: number; usedPercent: number; freeBytes: number}; uptime: {seconds: number}; timestamp: string}>;
  };
  vanillajs: {
    /** Returns the current server time as an ISO 8601 string. */
    get_time(): Promise<{time: string}>;
  };
};
