/**
 * Runs a Promela model through Spin: generates the verifier, compiles it, and lets it walk through every state.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

export interface Verdict {
  /** The assertion that a history breaks, if there is one. */
  readonly violation: string | undefined
  readonly states: number
  /** Whether every state within the bounds was seen. */
  readonly complete: boolean
}

export interface VerifyOptions {
  /** Names and values for the model's preprocessor: `['UNFENCED', 'TROUBLE=3']`. */
  readonly defines?: readonly string[]
  /** Optimised code takes longer to compile, which pays for itself beyond a few hundred thousand states. @default false */
  readonly optimised?: boolean
}

const run = promisify(execFile)

/** What the verifier says about `model`. Its end states are judged by the model's own monitor. */
export async function verify(model: string, { defines = [], optimised = false }: VerifyOptions = {}): Promise<Verdict> {
  const cwd = await mkdtemp(join(tmpdir(), 'waybill-model-'))
  try {
    await run('spin', [...defines.map((each) => `-D${each}`), '-a', model], { cwd })
    await run('gcc', [optimised ? '-O2' : '-O0', '-w', '-DSAFETY', '-DCOLLAPSE', '-DMEMLIM=4096', '-o', 'pan', 'pan.c'], { cwd })
    const { stdout } = await run('./pan', ['-E', '-m1000000'], { cwd, maxBuffer: 64 * 1024 * 1024 })
    return read(stdout)
  } finally {
    await rm(cwd, { recursive: true, force: true })
  }
}

function read(stdout: string): Verdict {
  const states = /(\d+(?:\.\d+e\+\d+)?) states, stored/.exec(stdout)?.[1]
  if (states === undefined) throw new Error(`The verifier did not say how many states there are:\n${stdout}`)
  return {
    violation: /assertion violated\s+(.*?) \(at depth/.exec(stdout)?.[1],
    states: Number(states),
    complete:
      /errors: 0\b/.test(stdout) && !stdout.includes('Search not completed') && !stdout.includes('max search depth too small'),
  }
}
