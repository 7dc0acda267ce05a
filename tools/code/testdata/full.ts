declare const tools: {
  s: {
    /**
     * First line. *\/ declare const evil: any; /*
     * \@effect read
     *
     *   indented `${code}`
     *
     * @effect modify
     */
    m(args?: {
      /**
       * How many.
       * *\/ more
       * @default 10 @minimum 1 @maximum 100
       */
      n?: number;
      /** @format date-time @deprecated */
      when?: string;
      o?: {
        /** Inner. */
        x: string
      }
    }): Promise<unknown>;
    plain(): Promise<unknown>;
  };
};
