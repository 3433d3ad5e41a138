/**
 * The files of the page, by the name they are asked for: nothing else of the disk is ever read.
 */
import { readFile } from 'node:fs/promises'

export interface PageFile {
  readonly body: Uint8Array<ArrayBuffer>
  readonly contentType: string
}

const files = [
  'index.html',
  'style.css',
  'icon.svg',
  'page.js',
  'elements.js',
  'services.js',
  'letters.js',
  'parked.js',
  'trace.js',
  'actions.js',
] as const

const contentTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  js: 'text/javascript; charset=utf-8',
}

/** A file of the page; `undefined` if it has none of this name. */
export async function pageFile(asked: string): Promise<PageFile | undefined> {
  const file = files.find((each) => each === asked)
  if (file === undefined) return undefined
  const body = new Uint8Array(await readFile(new URL(`page/${file}`, import.meta.url)))
  return { body, contentType: contentTypes[file.slice(file.lastIndexOf('.') + 1)] ?? 'text/plain' }
}
