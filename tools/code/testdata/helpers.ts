type Node = {v?: string; kids?: Node[]};
type COtherNode = {next?: COtherNode};
type DSharedPromise = {x?: unknown; y?: unknown; z?: unknown};
type A = A[] | string;
type ELoopArgs = {deep?: {self?: ELoopArgs}};
declare const tools: {
  a: {
    tree(args?: {root?: Node}): Promise<unknown>;
  };
  b: {
    tree(args?: {root?: Node}): Promise<unknown>;
  };
  c: {
    other(args?: {p?: COtherNode}): Promise<unknown>;
  };
  d: {
    shared(args?: {from?: DSharedPromise; to?: DSharedPromise}): Promise<unknown>;
  };
  e: {
    loop(args?: {x?: A}): Promise<{deep?: {self?: ELoopArgs}}>;
  };
};
