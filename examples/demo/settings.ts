/**
 * What the processes of the demo are told by the one that started them. Addresses lead through the fault proxies.
 */
export interface Settings {
  readonly videoUrl: string
  readonly catalogUrl: string
  readonly projectId: string
  readonly emulatorHost: string | undefined
  readonly redisUrl: string | undefined
  /** The catalog's name as a consumer. */
  readonly consumer: string
  readonly videoPort: number
  readonly catalogPort: number
  readonly broker: { readonly port: number; readonly adminPort: number; readonly dataDir: string }
}
