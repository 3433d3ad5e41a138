/**
 * One server per data folder.
 *
 * The lock is a local socket named after the folder: it ends with the process, however that ends. A server that finds
 * it answering knows that the folder is in use.
 */
import { createHash } from 'node:crypto'
import { rm, stat } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import type { Server } from 'node:net'
import { platform, tmpdir } from 'node:os'
import { join } from 'node:path'
import { PubsubServerError } from '../model/server-error.ts'

export interface DataLock {
  release(): Promise<void>
}

export async function lockData(dataDir: string): Promise<DataLock> {
  const path = await lockPath(dataDir)
  // Nothing is read or said: a guest that stays would keep the server from closing, and one that is gone would be an error.
  const server = createServer((socket) => socket.destroy())
  if (!(await listens(server, path))) {
    const isInUse = await answers(path)
    // Where the socket is a file, a killed server leaves it behind, and nothing answers there.
    if (!isInUse && !path.startsWith('\0')) await rm(path, { force: true })
    if (isInUse || !(await listens(server, path))) {
      throw new PubsubServerError(
        'REFUSED',
        `Another Pub/Sub server is using ${dataDir}: stop it, or give this one a folder of its own.`,
      )
    }
  }
  server.unref()
  return { release: () => new Promise((done) => void server.close(() => done())) }
}

/**
 * Linux and Windows keep sockets that are no files, and forget them with their process. Containers may have them in common and
 * have folders of their own under one path, so it is the folder that counts.
 */
export async function lockPath(dataDir: string): Promise<string> {
  const { dev, ino } = await stat(dataDir, { bigint: true })
  const name = `waybill-pubsub-${createHash('sha256').update(`${dev}:${ino}`).digest('hex').slice(0, 24)}`
  if (platform() === 'linux') return `\0${name}`
  return platform() === 'win32' ? `\\\\.\\pipe\\${name}` : join(tmpdir(), `${name}.sock`)
}

function answers(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      done(true)
    })
    socket.once('error', () => done(false))
  })
}

/** False when something is at that path already. */
function listens(server: Server, path: string): Promise<boolean> {
  return new Promise((done, failed) => {
    const refused = (error: NodeJS.ErrnoException): void => (error.code === 'EADDRINUSE' ? done(false) : failed(error))
    server.once('error', refused)
    server.listen(path, () => {
      server.off('error', refused)
      done(true)
    })
  })
}
