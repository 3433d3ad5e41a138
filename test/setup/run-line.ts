/**
 * Runs a line of the command-line interface in this process, as a user would type it, and keeps what it said.
 */
import { runCli } from '../../src/cli/run-cli.ts'

export interface Ended {
  readonly code: number
  readonly out: string
  readonly err: string
}

export interface Circumstances {
  readonly folder: string
  readonly env: Readonly<Record<string, string>>
  /** Ends commands that run until they are stopped. */
  readonly signal?: AbortSignal | undefined
  readonly isTerminal?: boolean
  readonly onOut?: ((text: string) => void) | undefined
  readonly onErr?: ((text: string) => void) | undefined
}

export async function runLine(line: string, circumstances: Circumstances): Promise<Ended> {
  const { folder, env, signal = new AbortController().signal, isTerminal = false, onOut, onErr } = circumstances
  const said = { out: '', err: '' }
  const code = await runCli({
    line: line.split(' ').filter((word) => word !== ''),
    env,
    folder,
    user: 'ada',
    out: (text) => {
      said.out += text
      onOut?.(text)
    },
    err: (text) => {
      said.err += text
      onErr?.(text)
    },
    stopSignal: () => signal,
    isTerminal,
  })
  return { code, ...said }
}
