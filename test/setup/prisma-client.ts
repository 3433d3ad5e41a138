/**
 * A generated Prisma client for the table `note (id int, text text)`, made once and kept in the ignored cache folder.
 *
 * Generating needs no engine, but Prisma's command line downloads one unless it is told where one is. Any file will do:
 * it is never started.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { pathToFileURL } from 'node:url'

import { PrismaPg } from '@prisma/adapter-pg'

import { cached } from '../../src/testing/process/cache-folder.ts'

/** The part of the generated client's type that the tests use. */
export interface NoteModel {
  create(arguments_: { data: { id: number; text: string } }): PromiseLike<unknown>
  update(arguments_: { where: { id: number }; data: { text: string } }): PromiseLike<unknown>
  upsert(arguments_: { where: { id: number }; create: { id: number; text: string }; update: object }): PromiseLike<unknown>
}

export interface PrismaTx {
  readonly note: NoteModel
  $queryRawUnsafe<Result = unknown>(text: string, ...values: unknown[]): Promise<Result>
  $executeRawUnsafe(text: string, ...values: unknown[]): Promise<number>
}

export interface PrismaClient extends PrismaTx {
  $connect(): Promise<void>
  $transaction<Results extends PromiseLike<unknown>[]>(statements: [...Results]): Promise<unknown[]>
  $transaction<Result>(work: (tx: PrismaTx) => Promise<Result>, options?: PrismaTransactionOptions): Promise<Result>
  $disconnect(): Promise<void>
}

interface PrismaTransactionOptions {
  maxWait?: number
  timeout?: number
  isolationLevel?: 'ReadUncommitted' | 'ReadCommitted' | 'RepeatableRead' | 'Serializable'
}

const schema = `
generator client {
  provider            = "prisma-client"
  output              = "./client"
  importFileExtension = "ts"
}
datasource db {
  provider = "postgresql"
}
model note {
  id   Int    @id
  text String
}
`

/** A client with one connection to the address. */
export async function openPrisma(url: string): Promise<PrismaClient> {
  const folder = await generated()
  const path = pathToFileURL(join(folder, 'client', 'client.ts')).href
  const { PrismaClient: Client } = (await import(path)) as { PrismaClient: new (options: object) => PrismaClient }
  return new Client({ adapter: new PrismaPg({ connectionString: url, max: 1 }) })
}

async function generated(): Promise<string> {
  const packageFile = createRequire(import.meta.url).resolve('prisma/package.json')
  const { version } = createRequire(import.meta.url)(packageFile) as { version: string }
  // Inside the project, because the generated code imports Prisma's runtime by name.
  const cacheDir = join(import.meta.dirname, '..', '..', '.cache')
  mkdirSync(cacheDir, { recursive: true })
  return await cached(cacheDir, `prisma-${version}`, async (folder) => {
    const file = join(folder, 'schema.prisma')
    writeFileSync(file, schema)
    const cli = join(dirname(packageFile), 'build', 'index.js')
    const env = {
      ...process.env,
      PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
      CHECKPOINT_DISABLE: '1',
      PRISMA_HIDE_UPDATE_MESSAGE: '1',
    }
    await promisify(execFile)(process.execPath, [cli, 'generate', '--schema', file], { cwd: folder, env })
  })
}
