<?php

declare(strict_types=1);

namespace App\Controller;

use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** A catalogue of three; what is created is answered, not kept: the example has no database. */
final class ItemController extends AbstractController
{
    private const ITEMS = [1 => 'bellows', 2 => 'poker', 3 => 'tongs'];

    public function show(int $id): JsonResponse
    {
        return isset(self::ITEMS[$id])
            ? new JsonResponse(['id' => $id, 'name' => self::ITEMS[$id]])
            : new JsonResponse(['error' => "There is no item {$id}."], Response::HTTP_NOT_FOUND);
    }

    public function create(Request $request): JsonResponse
    {
        $name = json_decode($request->getContent(), true)['name'] ?? null;
        if (!is_string($name) || trim($name) === '') {
            return new JsonResponse(['error' => 'A name is needed.'], Response::HTTP_UNPROCESSABLE_ENTITY);
        }

        return new JsonResponse(['id' => count(self::ITEMS) + 1, 'name' => $name], Response::HTTP_CREATED);
    }
}
