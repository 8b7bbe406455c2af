<?php

/** Cookies that redirects set for the next attempts. CurlHttpClient leaves them to libcurl, which here sees one attempt at a time. */

declare(strict_types=1);

namespace Hearth\Symfony;

/** @internal */
final class RedirectCookies
{
    /** @var array<string, array{name: string, value: string, domain: string, whole: bool, path: string, secure: bool}> */
    private array $cookies = [];

    /** @param list<string> $fields values of Set-Cookie in the answer of this URL */
    public function receive(string $url, array $fields): void
    {
        $host = strtolower((string) parse_url($url, PHP_URL_HOST));
        $folder = rtrim((string) preg_replace('#/[^/]*$#', '', (string) (parse_url($url, PHP_URL_PATH) ?? '/')), '/');
        foreach ($fields as $field) {
            $attributes = array_map('trim', explode(';', $field));
            [$name, $value] = array_map('trim', explode('=', (string) array_shift($attributes), 2)) + [1 => null];
            if ($name === '' || $value === null) {
                continue;
            }
            $cookie = ['name' => $name, 'value' => $value, 'domain' => $host, 'whole' => true, 'path' => $folder . '/', 'secure' => false];
            $gone = false;
            foreach ($attributes as $attribute) {
                [$key, $set] = array_map('trim', explode('=', $attribute, 2)) + [1 => ''];
                switch (strtolower($key)) {
                    case 'domain':
                        $domain = strtolower(ltrim($set, '.'));
                        // A cookie for all of .com is refused.
                        if ($domain !== $host && (!str_ends_with($host, ".{$domain}") || !str_contains($domain, '.'))) {
                            continue 3;
                        }
                        $cookie['domain'] = $domain;
                        $cookie['whole'] = false;
                        break;
                    case 'path':
                        $cookie['path'] = ($set[0] ?? '') === '/' ? $set : $cookie['path'];
                        break;
                    case 'secure':
                        $cookie['secure'] = true;
                        break;
                    case 'max-age':
                        $gone = (int) $set <= 0;
                        break;
                    case 'expires':
                        $gone = $gone || (($time = strtotime($set)) !== false && $time <= time());
                        break;
                }
            }
            $id = "{$cookie['domain']} {$cookie['path']} {$name}";
            unset($this->cookies[$id]);
            if (!$gone) {
                $this->cookies[$id] = $cookie;
            }
        }
    }

    /** The value of Cookie for this URL; null: none. */
    public function for(string $url): ?string
    {
        $host = strtolower((string) parse_url($url, PHP_URL_HOST));
        $path = (string) (parse_url($url, PHP_URL_PATH) ?? '/');
        $secure = str_starts_with(strtolower($url), 'https:');
        $pairs = [];
        foreach ($this->cookies as $cookie) {
            $forHost = $host === $cookie['domain'] || (!$cookie['whole'] && str_ends_with($host, ".{$cookie['domain']}"));
            $forPath = $path === $cookie['path'] || str_starts_with("{$path}/", rtrim($cookie['path'], '/') . '/');
            if ($forHost && $forPath && ($secure || !$cookie['secure'])) {
                $pairs[] = "{$cookie['name']}={$cookie['value']}";
            }
        }
        return $pairs === [] ? null : implode('; ', $pairs);
    }
}
