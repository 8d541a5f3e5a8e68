/** What a create hook tells of the machine that it has made (docs/gateway.md#hooks). */
export interface Made {
  readonly address: string;
  /** The token of its daemon, if the backend has to know it. */
  readonly envdAccessToken?: string;
  /** More members for `POST /init`. */
  readonly init?: object;
}

/** What makes and ends sandboxes. Each method is done once it resolves; `remove` also where nothing is there, or only a part. */
export interface Backend {
  /** What has to be there before the first sandbox. */
  prepare(say: (text: string) => void): Promise<void>;
  create(id: string): Promise<Made>;
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  remove(id: string): Promise<void>;
}
